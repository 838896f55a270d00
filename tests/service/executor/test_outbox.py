"""Events on their way to the database: in order, bounded, and none lost when it cannot be written for a while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from runner.errors import DatabaseError
from runner.service.executor.outbox import LAST, OUTPUT, TOGETHER, Entry, Outbox
from runner.service.executor.telling import CUT, Log
from runner.service.settings import LimitSettings


class Table:
    """Takes events down."""

    def __init__(self) -> None:
        self.rows: list[Entry] = []
        self.writes: list[int] = []
        self.broken = False

    async def write(self, entries: Sequence[Entry]) -> None:
        # somebody else has a turn
        await asyncio.sleep(0)
        if self.broken:
            raise DatabaseError("it is away.")
        self.rows += entries
        self.writes.append(len(entries))


async def test_events_are_written_in_order_and_some_at_a_time() -> None:
    table = Table()
    outbox = Outbox(table.write, LimitSettings())
    writing = asyncio.create_task(outbox.run())
    for number in range(3 * TOGETHER):
        outbox.put("rollout", {"number": number})
        if number % 50 == 0:
            await asyncio.sleep(0)
    await outbox.flush()
    writing.cancel()
    assert [json.loads(body)["number"] for _, body in table.rows] == list(range(3 * TOGETHER))
    assert max(table.writes) <= TOGETHER


async def test_of_too_many_events_the_first_and_the_last_are_kept_and_a_line_says_so() -> None:
    table = Table()
    outbox = Outbox(table.write, LimitSettings(job_events=LAST + 10))
    for number in range(1000):
        outbox.put("rollout", {"number": number})
    outbox.put("verdict", {"number": 1000})
    await outbox.flush()
    numbers = [json.loads(body).get("number") for _, body in table.rows]
    assert numbers == [*range(10), None, *range(1001 - LAST, 1001)]
    kind, body = table.rows[10]
    assert kind == OUTPUT
    assert json.loads(body)["text"] == f"{1001 - 10 - LAST} events are left out here"


async def test_output_beyond_its_limit_is_left_out_and_other_events_are_not() -> None:
    table = Table()
    outbox = Outbox(table.write, LimitSettings(job_log_bytes=1000))
    for _ in range(100):
        outbox.put(OUTPUT, {"text": "x" * 90})
    outbox.put("verdict", {})
    await outbox.flush()
    assert table.rows[-1][0] == "verdict"
    assert 5 < len(table.rows) < 12


async def test_what_could_not_be_written_is_written_later_and_once() -> None:
    table = Table()
    outbox = Outbox(table.write, LimitSettings())
    table.broken = True
    outbox.put("rollout", {"number": 0})
    with pytest.raises(DatabaseError):
        await outbox.flush()
    table.broken = False
    outbox.put("rollout", {"number": 1})
    await outbox.flush()
    assert [json.loads(body)["number"] for _, body in table.rows] == [0, 1]


def test_kept_output_says_whose_it_is_shows_no_control_characters_and_is_bounded() -> None:
    log = Log(100)
    log.add("0-a-1", "one\ntwo \x1b[2J")
    log.add("worker", "y" * 500)
    log.add("worker", "more")
    text = log.to_bytes().decode()
    assert text.startswith("0-a-1: one\n0-a-1: two \\x1b[2J\n")
    assert text.endswith(CUT)
    assert "more" not in text
