"""However much a worker says, the caller holds a bounded part of it, counts the rest, and ends what is a flood."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from runner.broker import CallScope
from runner.calls import Death
from runner.errors import FrameError, WorkerLostError
from runner.limits import LOG_SLACK, MAX_EXCESS_LINES, MAX_TRANSCRIPT_VALUES, Limits
from runner.protocol import CallDone, CreateDataset, DatasetPart, Snapshot, Transcript
from tests.unit.test_calls import Setting, log, many, outcome, reasons, result


@pytest.fixture
async def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(
    ("limits", "parts", "text"),
    [
        (Limits(dataset_examples=3), [["a"] * 3, ["b"]], "gave 4 example ids of 4 bytes, expected at most 3 of"),
        (
            Limits(dataset_bytes=10),
            [["é"] * 5, ["b"]],
            "gave 6 example ids of 11 bytes, expected at most 1000000 of 10",
        ),
        (Limits(), [["a", " \t"]], "gave a blank example id"),
    ],
)
async def test_example_ids_without_end_or_without_text_are_refused(
    limits: Limits, parts: list[list[str]], text: str
) -> None:
    setting = Setting(limits)
    task = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), None, CallScope({})))
    await setting.sent_message(CreateDataset)
    setting.hear(*(DatasetPart(call=1, ids=ids) for ids in parts[:-1]))
    with pytest.raises(FrameError, match=text):
        setting.hear(DatasetPart(call=1, ids=parts[-1]))
    setting.it.died(Death("It was killed."))
    with pytest.raises(WorkerLostError):
        await task


async def test_a_transcript_beyond_the_limit_is_refused() -> None:
    setting = Setting(Limits(transcript_bytes=100))
    setting.begin("a")
    with pytest.raises(FrameError, match="a transcript of 200 bytes, expected at most 100"):
        setting.hear(Transcript(call=1, rollout_id="a", messages=bytes(200)))


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"",', b"[[[]]],", b'{"a":1},'])
async def test_a_transcript_that_would_grow_when_decoded_is_refused_before_it_does(
    setting: Setting, unit: bytes
) -> None:
    setting.begin("a")
    messages = b"[" + unit * MAX_TRANSCRIPT_VALUES + b"0]"
    with pytest.raises(FrameError, match=r"a transcript of \d+ values, expected at most 200000"):
        setting.hear(Transcript(call=1, rollout_id="a", messages=messages))


async def test_punctuation_inside_of_texts_is_no_value(setting: Setting) -> None:
    call = setting.begin("a")
    text = json.dumps([{"role": "user", "content": '[{":,\\"' * MAX_TRANSCRIPT_VALUES}]).encode()
    setting.hear(Transcript(call=1, rollout_id="a", messages=text), outcome("a"), CallDone(call=1))
    (record,) = result(call)
    assert record.transcript == json.loads(text)


async def test_what_rollouts_in_flight_say_together_is_bounded_and_what_is_left_out_is_counted() -> None:
    setting = Setting(Limits(in_flight_bytes=21_000))
    call = setting.begin("a", "b")
    data = json.dumps(["x" * 12_000]).encode()
    for rollout in ("a", "b"):
        setting.hear(Transcript(call=1, rollout_id=rollout, messages=data), log("y" * 8_000, rollout))
    setting.hear(outcome("a"), outcome("b"), CallDone(call=1))
    a, b = result(call)
    assert (a.transcript, a.transcript_omitted_bytes) == (["x" * 12_000], 0)
    assert (b.transcript, b.transcript_omitted_bytes) == (None, len(data))
    assert [line.text for line in a.logs] == ["y" * 8_000]
    assert [line.text for line in b.logs] == ["… 1 line left out …"]
    assert (a.dropped_logs, b.dropped_logs) == (0, 1)
    again = setting.begin("a")
    setting.hear(Transcript(call=2, rollout_id="a", messages=data), outcome("a", call=2), CallDone(call=2))
    assert result(again)[0].transcript == ["x" * 12_000]


async def test_snapshots_of_a_rollout_take_the_room_of_one_however_many_come() -> None:
    setting = Setting(Limits(in_flight_bytes=21_000))
    call = setting.begin("a", "b")
    data = json.dumps(["x" * 12_000]).encode()
    for _ in range(10):
        setting.hear(Snapshot(call=1, rollout_id="a", stack="s", messages=data))
    for _ in range(10):
        setting.hear(Snapshot(call=1, rollout_id="b", stack="s", messages=data))
    setting.hear(Snapshot(call=1, rollout_id="a", stack="s", messages=None))
    setting.hear(Snapshot(call=1, rollout_id="b", stack="s", messages=data))
    setting.it.died(Death("It was killed."))
    a, b = result(call)
    assert a.transcript is None
    assert b.transcript == ["x" * 12_000]


@pytest.mark.parametrize("single", [False, True])
async def test_rewards_for_which_there_is_no_room_cost_their_rollout(single: bool) -> None:
    setting = Setting(Limits(in_flight_bytes=10_000))
    call = setting.begin("a", single=single)
    setting.hear(outcome("a", rewards=many(500)), CallDone(call=1))
    assert reasons(call) == [("sandbox_error", "runner")]
    assert "Run fewer of them at once, or raise limits.in_flight_bytes." in str(result(call)[0].outcome.error)
    assert call.attempt is None


async def test_log_lines_beyond_the_limit_are_counted_where_they_are_missing() -> None:
    setting = Setting(Limits(rollout_log_bytes=2000))
    call = setting.begin("a", "b")
    for _ in range(100):
        setting.hear(log("x" * 96, "a"))
    setting.hear(log("", "a", dropped=5), log("", "b", dropped=7), log("z", "b"), outcome("a"), outcome("b"))
    setting.hear(CallDone(call=1))
    a, b = result(call)
    fit = LOG_SLACK * 2000 // log("x" * 96).cost
    assert [line.text for line in a.logs] == ["x" * 96] * fit + [f"… {105 - fit} lines left out …"]
    assert a.dropped_logs == 105 - fit
    assert [line.text for line in b.logs] == ["… 7 lines left out …", "z"]
    assert b.dropped_logs == 7


@pytest.mark.parametrize("rollouts", [("a",), ()], ids=["of a rollout", "outside of any"])
@pytest.mark.parametrize(("text", "dropped"), [("x" * 100, 0), ("x", 0), ("", 0), ("", 1)])
async def test_a_flood_of_log_messages_is_a_lie(rollouts: tuple[str, ...], text: str, dropped: int) -> None:
    setting = Setting(Limits(rollout_log_bytes=5000))
    setting.begin("a")
    with pytest.raises(FrameError, match=f"more than {MAX_EXCESS_LINES} log lines beyond the limits"):
        for _ in range(5 * MAX_EXCESS_LINES):
            setting.hear(log(text, *rollouts, dropped=dropped))
    assert sum(len(line.text) for line in setting.output) <= 100_000
