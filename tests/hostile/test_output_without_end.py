"""Whatever a bundle prints or logs, and however much: both ends are kept, the rest is counted, and others go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmax.envs import Dataset
from runner import IsolatedEnvironment, Limits, LogLine, OutputEvent, RecordEvent, RolloutRecord, isolate
from runner.handle import ExampleHandle
from runner.provision import Cache
from tests.hostile.environments import flooding
from tests.hostile.environments.flooding import RECORDS
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration

LIMITS = Limits(rollout_log_bytes=20_000, output_bytes=50_000, rollout_s=1.0, cancel_grace_s=0.3)
GAP = re.compile(r"… (\d+) lines left out …")


@dataclass
class Flood:
    env: IsolatedEnvironment
    dataset: Dataset[ExampleHandle]
    records: dict[str, RolloutRecord] = field(default_factory=dict)
    lines: list[LogLine] = field(default_factory=list)

    async def run(self, act: str, prefix: str = "") -> RolloutRecord:
        outcomes = await run_one(self.env, self.dataset, act, prefix=prefix or act)
        return self.records[next(iter(outcomes))]


Opened = Callable[..., AbstractAsyncContextManager[Flood]]


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def opened(limits: Limits = LIMITS) -> AsyncIterator[Flood]:
        def on_event(event: object) -> None:
            if isinstance(event, RecordEvent):
                flood.records[event.record.rollout_id] = event.record
            if isinstance(event, OutputEvent):
                flood.lines.append(event.line)

        env = isolate(bundled(flooding, "Flooding"), cache=Cache(shared_cache), limits=limits, on_event=on_event)
        async with env:
            flood = Flood(env, await env.create_dataset("eval", tmp_path))
            yield flood

    return opened


def kept(lines: list[LogLine] | tuple[LogLine, ...]) -> tuple[list[int], int]:
    """Numbers of the records that are there, and how many are said to be missing."""
    numbers = [int(line.text.removeprefix("record ")) for line in lines if line.text.startswith("record ")]
    return numbers, sum(int(found[1]) for line in lines if (found := GAP.fullmatch(line.text)))


async def test_of_many_records_in_a_rollout_the_first_and_the_last_are_kept_and_the_rest_is_counted(
    opened: Opened,
) -> None:
    async with opened(Limits(rollout_log_bytes=20_000)) as flood:
        record = await flood.run("log many")
    numbers, missing = kept(record.logs)
    assert record.outcome.rewards == {"x": 1.0}
    assert (numbers[0], numbers[-1]) == (0, RECORDS - 1)
    assert len(numbers) + missing == RECORDS
    assert record.dropped_logs == missing
    assert sum(len(line.text) for line in record.logs) <= 20_000
    (gap,) = (place for place, line in enumerate(record.logs) if GAP.fullmatch(line.text))
    assert numbers == [*range(gap), *range(RECORDS - (len(numbers) - gap), RECORDS)]


async def test_of_records_outside_of_rollouts_both_ends_are_told_and_the_rest_is_counted(opened: Opened) -> None:
    async with opened(Limits(rollout_log_bytes=20_000)) as flood:
        await flood.run("thread logs")
    numbers, missing = kept(flood.lines)
    assert (numbers[0], numbers[-1]) == (0, RECORDS - 1)
    assert len(numbers) + missing == RECORDS


@pytest.mark.parametrize("act", ["print", "log"])
async def test_a_rollout_that_never_stops_is_ended_by_its_deadline_and_the_next_group_is_fine(
    opened: Opened, act: str
) -> None:
    async with opened() as flood:
        record = await flood.run(act)
        assert (record.outcome.termination_reason, record.outcome.rewards) == ("rollout_timeout", {})
        assert sum(len(line.text) for line in record.logs) <= 2 * LIMITS.rollout_log_bytes
        assert (await flood.run("nothing")).outcome.rewards == {"x": 1.0}


async def test_rollouts_go_on_while_a_thread_prints_without_end(opened: Opened) -> None:
    async with opened(Limits(output_bytes=50_000)) as flood:
        await flood.run("thread prints")
        number = 0
        # a fast machine has run many before the thread has printed as much
        while number < 20 or "bytes left out" not in flood.env.output()["stdout"]:
            assert (await flood.run("nothing", prefix=f"n{number}")).outcome.rewards == {"x": 1.0}
            number += 1
        output = flood.env.output()
    assert output["stdout"].startswith("printed by a thread\n")
    assert len(output["stdout"]) < 51_000


async def test_programs_and_raw_bytes_are_kept_bounded_and_so_is_what_is_printed_while_closing(opened: Opened) -> None:
    async with opened(Limits(output_bytes=50_000)) as flood:
        await asyncio.gather(flood.run("program"), flood.run("descriptor"))
        env = flood.env
    output = env.output()
    assert "bytes left out" in output["stdout"]
    assert "bytes left out" in output["stderr"]
    assert "never reached" not in output["stderr"]
    assert output["stderr"].endswith("closing 2999 " + "z" * 100 + "\n")
    assert len(output["stdout"]) + len(output["stderr"]) < 102_000
