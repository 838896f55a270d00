"""Whether the requests of one session are ones that a model can be trained on.

Comes in: the chat requests of a session and the answers, as they come and go. Goes out: findings, in the form of a
collect answer. Nothing is refused for them, and nothing is kept of a message but numbers.

A trainer takes a session for one conversation: it samples each answer in its own way, and trains on the last request,
of which everything that went before has to be the beginning.
"""

from __future__ import annotations

from runner.gateway.controls import controls_in
from runner.gateway.findings import Code, Finding, Findings
from runner.gateway.history import History


class SessionContract:
    """Findings over the chat requests of one session. It belongs to one event loop or thread.

    Each call is announced by `began`; then comes `answered` if there is an answer, and in any case `ended`. An answer
    is told before the client has its last byte: the client may go on with the next request at once.
    """

    __slots__ = ("_findings", "_history", "_open")

    def __init__(self) -> None:
        self._findings = Findings()
        self._history = History()
        self._open: dict[int, None] = {}

    def began(self, number: int, document: object) -> None:
        """A request for a chat completion has arrived.

        Args:
            number: The call's number in the session.
            document: The request's body, decoded. One that is no object is none that a model answers.
        """
        if not isinstance(document, dict):
            return
        if self._open:
            other = next(reversed(self._open))
            fact = f"call {number} began before call {other} had its answer"
            self._error("overlapping_generations", "", f"a session is one conversation: {fact}. Await each.", number)
        self._open[number] = None
        for found in controls_in(document, number):
            self._findings.add(found)
        rewritten, changed = self._history.ask(number, document)
        if rewritten is not None:
            text = f"the conversation was rewritten: at {rewritten.field}, {rewritten.fact}. Only append to it."
            self._error("rewritten_history", rewritten.field, text, number)
        if changed is not None:
            text = f"the tools changed: at {changed.field}, {changed.fact}. Offer the same in each request."
            self._error("changed_tools", changed.field, text, number)

    def answered(self, number: int, message: object) -> None:
        """The model has answered; to be told before the client has the last of it.

        Args:
            number: The call's number.
            message: The answer's message, from its first choice; `None` where there is none, or it is not known.
        """
        self._open.pop(number, None)
        if isinstance(message, dict):
            self._history.answer(number, message)

    def ended(self, number: int) -> None:
        """A call is over, with an answer or without one."""
        self._open.pop(number, None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, in order."""
        return self._findings.all()

    @property
    def errors(self) -> list[dict[str, str]]:
        """What keeps the session from being trained on: `code`, `message` and mostly `field`."""
        return [found.to_json() for found in self.findings if found.severity == "error"]

    @property
    def warnings(self) -> list[dict[str, str]]:
        """What may come out otherwise than in training, in the same form."""
        return [found.to_json() for found in self.findings if found.severity == "warning"]

    def _error(self, code: Code, field: str, message: str, call: int) -> None:
        self._findings.add(Finding(code=code, severity="error", field=field, message=message, call=call))
