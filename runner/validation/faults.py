"""Failures of models, as a rollout meets them: made here, in the place of the recorded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from runner.gateway.exchange import Answer, CallTrace, ModelCall, Upstream
from runner.gateway.session import is_chat
from runner.models.answer import Call, Completion
from runner.models.script import Usage
from runner.models.wire import completion_body, completion_events, error_body
from runner.validation.tape import JSON_HEADERS, Given, Playback

UNKNOWN_TOOL: Final = "a_tool_that_is_not_there"


class Fault(Protocol):
    """What a model, or a judge, does wrong in one rollout."""

    bindings: frozenset[str]
    """The bindings whose calls fail; where there are none, those of the rollout's own model do."""
    injected: bool
    """Whether there was an occasion to do it."""

    def answer(self, call: ModelCall, number: int) -> Answer | None:
        """Answer a call; `None` leaves it to the recorded answers.

        Args:
            call: What is asked.
            number: How often its session was asked for a completion before.
        """


class Refusal:
    """Every call is answered with an error status.

    Args:
        status: Which.
        bindings: The bindings whose calls are, instead of those of the rollout's own model.
    """

    def __init__(self, status: int, *, bindings: frozenset[str] = frozenset()) -> None:
        self.bindings = bindings
        self.injected = False
        self._status = status

    def answer(self, call: ModelCall, number: int) -> Answer | None:
        """Refuse."""
        self.injected = True
        more = (("retry-after", "0"),) if self._status == 429 else ()
        return Given.of(dict(error_body(self._status, "this failure is a test of benchmax")), self._status, *more)


class NoContextLeft:
    """From one call on there is no room in the context.

    Args:
        first: Which call is the first that is refused.
    """

    bindings: frozenset[str] = frozenset()

    def __init__(self, first: int) -> None:
        self.injected = False
        self._first = first

    def answer(self, call: ModelCall, number: int) -> Answer | None:
        """Refuse, from that call on."""
        if number < self._first:
            return None
        self.injected = True
        code = "context_budget_exceeded"
        return Given.of(dict(error_body(400, "no tokens are left in this context", code=code)), 400)


class SenselessToolCalls:
    """The first answer calls tools in ways that no tool can take."""

    bindings: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.injected = False

    def answer(self, call: ModelCall, number: int) -> Answer | None:
        """Call tools, if there are any."""
        if number or not isinstance(call.document, dict):
            return None
        names = _tools(call.document)
        if not names:
            return None
        self.injected = True
        calls = [
            Call(name, arguments, f"call_{i}")
            for i, (name, arguments) in enumerate(
                [
                    (names[0], '{"cut short": '),
                    (names[0], "[1, 2]"),
                    (names[0], "3"),
                    (UNKNOWN_TOOL, "{}"),
                    (names[0], "{}"),
                ]
            )
        ]
        return _completion(call.document, calls)


class Failing:
    """An `Exchange` in which one rollout meets a fault; all else is as recorded.

    Args:
        playback: The recorded answers.
        fault: What goes wrong.
        victim: The rollout; a fault of bindings meets all.
    """

    def __init__(self, playback: Playback, fault: Fault, victim: str) -> None:
        self._playback = playback
        self._fault = fault
        self._victim = victim

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers."""
        recorded = self._playback.upstream(rollout_id, binding, default)
        met = binding in self._fault.bindings if self._fault.bindings else not binding and rollout_id == self._victim
        return _Failing(self._fault, recorded) if met else recorded

    def finished(self, trace: CallTrace) -> None:
        """Do nothing."""


class _Failing:
    def __init__(self, fault: Fault, recorded: Upstream) -> None:
        self._fault = fault
        self._recorded = recorded
        self._asked = 0

    async def send(self, call: ModelCall) -> Answer:
        """Fail, or answer as recorded.

        Raises:
            UpstreamError: there is no answer.
        """
        if call.method == "GET" or not is_chat(call.route):
            return await self._recorded.send(call)
        number, self._asked = self._asked, self._asked + 1
        return self._fault.answer(call, number) or await self._recorded.send(call)


def _tools(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that a request offers, as far as they can be told."""
    offered = document.get("tools")
    found = []
    for tool in offered if isinstance(offered, list) else []:
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name:
            found.append(name)
    return found


def _completion(document: Mapping[str, Any], calls: Sequence[Call]) -> Given:
    model = str(document.get("model"))
    completion = Completion(None, tuple(calls), "tool_calls", Usage(prompt_tokens=1, completion_tokens=1))
    if document.get("stream") is not True:
        return Given.of(dict(completion_body("fault", model, [completion])))
    options = document.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    data = b"".join(completion_events("fault", model, [completion], include_usage=usage))
    return Given(200, (("content-type", "text/event-stream"), *JSON_HEADERS[1:]), data)
