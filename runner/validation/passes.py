"""Passes over the same few groups of rollouts: at once or alone, with a model that answers or with recorded answers.

Comes in: an environment that has started, and groups. Goes out: what became of each group. A group that raises, or
whose worker ended, is a result like any other; only the caller's or the host's fault raises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmax.auth import ModelAuth
from benchmax.envs.shared_types import DatasetSplit, Example, RolloutRequest
from runner.errors import RunnerError
from runner.gateway.exchange import Exchange
from runner.handle import ExampleHandle
from runner.isolated import IsolatedEnvironment
from runner.models.command import Announcement
from runner.record import Event, OnEvent, RecordEvent, RolloutRecord, RolloutsEndedEvent
from runner.validation.lockstep import Lockstep
from runner.validation.tape import Switch

GROUPS: Final = 4
"""Groups of a pass: enough for the mock, of whose answers one in four is wrong, to answer both ways."""

SIBLINGS: Final = 2
"""Rollouts of a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Siblings that are to run: which example, by its position, and their ids."""

    position: int
    rollout_ids: tuple[str, ...]


def groups_of(example_ids: Sequence[str]) -> list[Group]:
    """Choose what to run: the first examples, the same ones again where there are fewer than groups."""
    found = []
    for number in range(GROUPS):
        again, position = divmod(number, min(GROUPS, len(example_ids)))
        first = again * SIBLINGS
        name = f"{position}-{example_ids[position][:8]}"
        found.append(Group(position, tuple(f"{name}-{k}" for k in range(first, first + SIBLINGS))))
    return found


@dataclass(slots=True)
class Ended:
    """What became of a group.

    Args:
        group: Which.
        records: Of each rollout that has an outcome.
        raised: What `run_group` raised, if it did: code of the bundle, or the end of its worker.
        seen: When rollouts were seen to end, by the monotonic clock; scoring of their group comes after that.
    """

    group: Group
    records: dict[str, RolloutRecord] = field(default_factory=dict)
    raised: RunnerError | None = None
    seen: dict[str, float] = field(default_factory=dict)

    @property
    def ended(self) -> Mapping[str, object]:
        """How each rollout ended, as far as it is compared."""
        return {name: compared(record) for name, record in self.records.items()}


def few_enough(first: Sequence[Ended], *, seconds: float) -> list[Group]:
    """Return as many groups as run one after the other in a time, judged by what they took at first without a model.

    Args:
        first: How they ended then.
        seconds: The time; the first group is taken in any case.
    """
    chosen, total = [first[0].group], 0.0
    for number, result in enumerate(first):
        total += sum(_own_seconds(record) for record in result.records.values())
        if number and total <= seconds:
            chosen.append(result.group)
    return chosen


def _own_seconds(record: RolloutRecord) -> float:
    asked = sum(trace.seconds for trace in record.calls)
    return max(0.0, (record.seconds or 0.0) - asked)


def compared(record: RolloutRecord) -> dict[str, object]:
    """Return what of an outcome has to be the same another time."""
    outcome = record.outcome
    return {
        "termination_reason": outcome.termination_reason,
        # of several things that go wrong at once, which one is told first is chance
        "has an error": outcome.error is not None,
        "rewards": dict(outcome.rewards),
    }


class Stage:
    """An environment, whose model answers as each pass has it.

    Args:
        switch: Who answers.
        on_event: Told what happens in it.
    """

    def __init__(self, switch: Switch, on_event: OnEvent) -> None:
        self.switch = switch
        self._listener = on_event
        self.env: IsolatedEnvironment
        self.examples: Sequence[Example[ExampleHandle]] = ()
        """The first ones of its dataset."""
        self.first: Sequence[Example[ExampleHandle]] = ()
        """What it made when it was asked for one."""
        self._records: dict[str, RolloutRecord] = {}
        self._seen: dict[str, float] = {}
        self._lockstep: Lockstep | None = None

    def on_event(self, event: Event) -> None:
        """Take in what its environment tells."""
        if isinstance(event, RecordEvent):
            self._records[event.record.rollout_id] = event.record
        elif isinstance(event, RolloutsEndedEvent):
            self._seen.update(dict.fromkeys(event.rollout_ids, time.monotonic()))
            if self._lockstep is not None:
                self._lockstep.ended(event.rollout_ids)
        self._listener(event)

    async def together(self, groups: Sequence[Group], exchange: Exchange, asking: Asking) -> list[Ended]:
        """Run groups at the same time, turn by turn."""
        ids = [name for group in groups for name in group.rollout_ids]
        self.switch.current = self._lockstep = lockstep = Lockstep(exchange, ids)

        async def run(group: Group) -> Ended:
            try:
                return await self._run(group, asking)
            finally:
                lockstep.ended(group.rollout_ids)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(run(group)) for group in groups]
        except BaseExceptionGroup as failed:
            raise _first(failed) from None
        finally:
            self._lockstep = None
        return [task.result() for task in running]

    async def alone(self, groups: Iterable[Group], exchange: Exchange, asking: Asking) -> list[Ended]:
        """Run one group after the other; where siblings are not scored together, one rollout after the other."""
        self.switch.current = exchange
        results = []
        for group in groups:
            if self.env.scores_groups:
                results.append(await self._run(group, asking))
                continue
            parts = [await self._run(Group(group.position, (name,)), asking) for name in group.rollout_ids]
            raised = next((part.raised for part in parts if part.raised is not None), None)
            records = {name: record for part in parts for name, record in part.records.items()}
            results.append(Ended(group, records, raised))
        return results

    async def _run(self, group: Group, asking: Asking) -> Ended:
        for name in group.rollout_ids:
            self._records.pop(name, None)
            self._seen.pop(name, None)
        example = self.examples[group.position]
        result = Ended(group)
        try:
            await self.env.run_group([asking.request(name, example) for name in group.rollout_ids])
        except RunnerError as error:
            if error.fault != "bundle":
                raise
            result.raised = error
        result.records = {name: self._records[name] for name in group.rollout_ids if name in self._records}
        result.seen = {name: self._seen[name] for name in group.rollout_ids if name in self._seen}
        return result


@dataclass(frozen=True, slots=True)
class Asking:
    """What requests of rollouts say of their model.

    Args:
        model: Where it is, and its name.
        auth: Its credential source.
        split: The dataset's split.
    """

    model: Announcement
    auth: ModelAuth
    split: DatasetSplit

    def request(self, rollout_id: str, example: Example[ExampleHandle]) -> RolloutRequest[ExampleHandle]:
        """Make the request of a rollout."""
        return RolloutRequest(rollout_id, example, self.model.model, self.model.base_url, self.auth, self.split)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
