"""Who waits for a credential source: one question at a time where its answer may serve others, so no stampede.

The first to ask leads; who asks meanwhile waits. Its failure is theirs, and whoever asks next asks anew. After its
success those whose question is the same get the same answer; the others ask side by side, and a source that keeps its
token has it by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmax.auth import ModelAuth, ModelRequestContext
from runner.broker.scope import CallScope
from runner.broker.source import WHOSE, ask_source
from runner.broker.threads import ThreadCrew
from runner.errors import CredentialSourceError, HeadersRefusedError
from runner.limits import PROVIDER_GRACE_S

Answer = dict[str, str] | HeadersRefusedError


@dataclass(slots=True, eq=False)
class Asker:
    """Somebody who waits for headers.

    Args:
        context: What the source is told.
        scope: The call it asks in. The source sees the context variables of whoever made the call, so that answers
            are not shared between calls.
        wait_s: How long it waits, its turn included.
        tell: Called once with the answer, unless it leaves before.
    """

    context: ModelRequestContext
    scope: CallScope
    wait_s: float
    tell: Callable[[Answer], None]
    deadline: float = 0.0
    question: _Question | None = None


@dataclass(slots=True, eq=False)
class _Question:
    """One call of a source, for everybody who asks the same."""

    key: tuple[CallScope, ModelRequestContext]
    askers: dict[Asker, None]
    leads: bool
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    over: bool = False


class Sources:
    """The credential sources of one environment, as far as somebody waits for them."""

    def __init__(self) -> None:
        self._flights: dict[tuple[int, bool], Flight] = {}
        self.crew = ThreadCrew()
        """Calls sources where they may block."""
        self._ending: set[asyncio.Task[None]] = set()

    def ask(self, auth: ModelAuth, asker: Asker, *, blocking: bool) -> Flight:
        """Ask a source; the answer is told later, never from here."""
        key = (id(auth), blocking)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight(auth, blocking, self.crew, self._forget, self._ending)
        flight.ask(asker)
        return flight

    async def ended(self) -> None:
        """Wait for sources that were cancelled to clean up, as long as that may take."""
        if self._ending:
            await asyncio.wait([*self._ending], timeout=PROVIDER_GRACE_S)

    def _forget(self, flight: Flight) -> None:
        del self._flights[id(flight.auth), flight.blocking]


@dataclass(slots=True, eq=False)
class Flight:
    """Everybody who waits for one source.

    Args:
        auth: The source.
        blocking: Whether it may block although it is asynchronous.
        crew: Calls it where it may block.
        on_idle: Called when nobody waits any more.
        ending: Where tasks are kept that were cancelled and have not ended.
    """

    auth: ModelAuth
    blocking: bool
    crew: ThreadCrew
    on_idle: Callable[[Flight], None]
    ending: set[asyncio.Task[None]]
    _leader: _Question | None = None
    _waiting: dict[Asker, None] = field(default_factory=dict)
    _questions: set[_Question] = field(default_factory=set)

    def ask(self, asker: Asker) -> None:
        """Let one more wait."""
        asker.deadline = asyncio.get_running_loop().time() + asker.wait_s
        if self._leader is None:
            self._put([asker], leads=True)
        else:
            self._waiting[asker] = None

    def leave(self, asker: Asker) -> None:
        """Let one wait no more; what nobody waits for is cancelled."""
        question = asker.question
        (self._waiting if question is None else question.askers).pop(asker, None)
        for asked in (question, self._leader):
            if asked is None or asked.over or asked.askers or (asked is self._leader and self._waiting):
                continue
            self._take_off(asked)
            self._cancel(asked)
        self._check_idle()

    def _put(self, askers: Iterable[Asker], *, leads: bool) -> None:
        waiting = dict.fromkeys(askers)
        first = next(iter(waiting))
        question = _Question((first.scope, first.context), waiting, leads)
        for asker in waiting:
            asker.question = question
        self._questions.add(question)
        loop = asyncio.get_running_loop()
        # a context of its own: what one call of the source sets is not seen by another
        question.task = loop.create_task(
            self._run(question), name="benchmax-credentials", context=first.scope.context.copy()
        )
        question.timer = loop.call_at(first.deadline, self._expire, question, first.wait_s)

    async def _run(self, question: _Question) -> None:
        if question.leads:
            if self._leader is not None:
                # one that was put in the same turn of the loop leads already
                self._take_off(question)
                for asker in question.askers:
                    asker.question = None
                self._waiting |= question.askers
                return
            self._leader = question
        answer: Answer
        try:
            answer = await ask_source(self.auth, question.key[1], self.crew, blocking=self.blocking)
        except HeadersRefusedError as error:
            answer = error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if question.over or (task is not None and task.cancelling()):
                raise
            # not by anybody here: it comes from inside of the source
            answer = CredentialSourceError(f"{WHOSE} was cancelled.")
        self._settle(question, answer)

    def _settle(self, question: _Question, answer: Answer) -> None:
        if question.over:
            return
        waited: dict[Asker, None] = {}
        if self._leader is question:
            waited, self._waiting = self._waiting, {}
        self._take_off(question)
        told = [*question.askers]
        if isinstance(answer, dict):
            others: dict[tuple[CallScope, ModelRequestContext], list[Asker]] = {}
            for asker in waited:
                key = (asker.scope, asker.context)
                (told if key == question.key else others.setdefault(key, [])).append(asker)
            for askers in others.values():
                self._put(askers, leads=False)
        else:
            told += waited
        for asker in told:
            asker.tell(answer)
        self._check_idle()

    def _expire(self, question: _Question, wait_s: float) -> None:
        late = CredentialSourceError(
            f"{WHOSE} did not answer within {wait_s:g} s.", hint="Raise limits.headers_s if it takes that long."
        )
        self._settle(question, late)
        self._cancel(question)

    def _take_off(self, question: _Question) -> None:
        question.over = True
        self._questions.discard(question)
        if question.timer is not None:
            question.timer.cancel()
        if self._leader is question:
            self._leader = None

    def _cancel(self, question: _Question) -> None:
        if question.task is not None and not question.task.done():
            question.task.cancel()
            self.ending.add(question.task)
            question.task.add_done_callback(self.ending.discard)

    def _check_idle(self) -> None:
        if not self._questions and not self._waiting:
            self.on_idle(self)
