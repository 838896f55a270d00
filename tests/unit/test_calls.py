"""Whatever a worker says, and however it ends: one outcome per rollout, one answer per call, no lie believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs.shared_types import Example, RolloutOutcome, RolloutRequest
from runner.broker import CallScope
from runner.calls import DatasetCall, Death
from runner.conversation import Conversation, Position
from runner.errors import FrameError, RemoteError, WorkerLostError
from runner.limits import MAX_REWARD_COMPONENTS, MAX_TRANSCRIPT_DEPTH, Limits
from runner.protocol import (
    CallDone,
    CallFailed,
    Cancel,
    CreateDataset,
    DatasetPart,
    Expire,
    GroupDone,
    Log,
    Outcome,
    PlainOutcome,
    RemoteFailure,
    RolloutsEnded,
    RunGroup,
    RunRollout,
    ToWorker,
    Transcript,
)
from runner.record import LogLine, RolloutRecord
from runner.redaction import Redactor
from runner.rollout_call import RolloutCall
from tests.collecting import cyclic_garbage

FAILURE = RemoteFailure(type="pkg.Broken", message="it broke", traceback="Traceback: ...")


def request(rollout_id: str) -> RolloutRequest[Any]:
    return RolloutRequest(rollout_id, Example("e1", None), "m", "http://model", StaticBearerAuth("x"), "eval")


def outcome(rollout_id: str, call: int = 1, **changes: Any) -> Outcome:
    fields: dict[str, Any] = {"termination_reason": "finished", "rewards": b'{"score":1}', **changes}
    return Outcome(call=call, rollout_id=rollout_id, **fields)


def plain(reason: str = "finished", **changes: Any) -> PlainOutcome:
    return PlainOutcome(termination_reason=reason, **{"rewards": {"score": 1}, **changes})


def ended(*rollouts: str, call: int = 1) -> RolloutsEnded:
    return RolloutsEnded(call=call, rollouts=list(rollouts), seconds=[0.5] * len(rollouts))


def log(text: str, *rollouts: str, call: int | None = 1, **changes: Any) -> Log:
    fields: dict[str, Any] = {"stream": "log", "level": 20, "logger": "env", **changes}
    return Log(call=call, rollouts=list(rollouts), text=text, **fields)


class Setting:
    """A conversation whose worker is the test."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.sent: list[ToWorker] = []
        self.killed = asyncio.Event()
        self.output: list[LogLine] = []
        self.ended: list[tuple[str, ...]] = []
        self.redactor = Redactor()
        self.looked_at: list[int] = []
        self.it = Conversation(
            self.sent.append,
            self.look,
            self.killed.set,
            limits or Limits(),
            self.redactor,
            self.output.append,
            self.ended.append,
        )

    def look(self, call: int, then: Callable[[str], None]) -> None:
        self.looked_at.append(call)
        then(" It was at env.py:1 in f.")

    def begin(self, *rollouts: str, single: bool = False) -> RolloutCall:
        positions = [Position(1, 0)] * len(rollouts)
        return self.it.begin([request(name) for name in rollouts], positions, CallScope({}), single=single)

    def hear(self, *messages: Any) -> None:
        for message in messages:
            self.it.on_message(message)

    async def sent_message(self, kind: type[Any]) -> Any:
        while not (found := [message for message in self.sent if isinstance(message, kind)]):
            await asyncio.sleep(0.001)
        return found[0]


@pytest.fixture
async def setting() -> Setting:
    return Setting()


def result(call: RolloutCall) -> list[RolloutRecord]:
    records = call.records()
    assert call.future.result() == {record.rollout_id: record.outcome for record in records}
    return records


def reasons(call: RolloutCall) -> list[tuple[str, str]]:
    return [(record.outcome.termination_reason, record.origin) for record in result(call)]


# -- what an honest worker says -------------------------------------------------------------------------------


async def test_a_group_gives_a_record_of_each_rollout_in_request_order(setting: Setting) -> None:
    call = setting.begin("b", "a")
    (sent,) = setting.sent
    assert isinstance(sent, RunGroup)
    assert [spec.rollout_id for spec in sent.rollouts] == ["b", "a"]
    setting.hear(
        log("hello", "a"),
        Transcript(call=1, rollout_id="a", messages=b'[{"role":"user"}]', omitted_bytes=3),
        ended("a"),
        ended("b"),
        outcome("a", rewards=b'{"score":0.5,"big":123456789012345678901234567890}'),
        outcome("b", error="odd"),
        CallDone(call=1),
    )
    b, a = result(call)
    assert b.outcome == RolloutOutcome({"score": 1}, "finished", "odd")
    assert a.outcome.rewards == {"score": 0.5, "big": 123456789012345678901234567890}
    assert a.transcript == [{"role": "user"}]
    assert a.transcript_omitted_bytes == 3
    assert a.logs == (LogLine(stream="log", level=20, logger="env", text="hello"),)
    assert a.seconds == b.seconds == 0.5
    assert (a.example_id, a.origin, a.dropped_logs) == ("e1", "environment", 0)
    assert setting.ended == [("a",), ("b",)]
    assert setting.it.load == 0
    assert setting.it.scopes == {}


async def test_a_group_can_be_answered_by_one_message(setting: Setting) -> None:
    call = setting.begin("b", "a", "c")
    answer = [plain(seconds=0.25), plain("judge_error", rewards={}), plain(rewards={"score": 0.5, "n": 2**63 - 1})]
    setting.hear(ended("a"), GroupDone(call=1, outcomes=answer))
    b, a, c = result(call)
    assert [b.rollout_id, a.rollout_id, c.rollout_id] == ["b", "a", "c"]
    assert b.outcome == RolloutOutcome({"score": 1}, "finished")
    assert a.outcome == RolloutOutcome({}, "judge_error")
    assert c.outcome == RolloutOutcome({"score": 0.5, "n": 2**63 - 1}, "finished")
    assert [record.seconds for record in (b, a, c)] == [0.25, 0.5, None]
    assert {record.origin for record in (b, a, c)} == {"environment"}
    assert setting.ended == [("a",), ("b",)]
    assert setting.it.load == 0
    assert setting.it.scopes == {}


async def test_answered_groups_leave_nothing_for_the_cyclic_collector(setting: Setting) -> None:
    async def run() -> None:
        long, short = setting.begin("a"), setting.begin("a")
        waiting = [asyncio.ensure_future(setting.it.finish(call)) for call in (long, short)]
        setting.hear(log("x", "a", call=long.number), ended("a", call=long.number), outcome("a", call=long.number))
        setting.hear(CallDone(call=long.number), GroupDone(call=short.number, outcomes=[plain(seconds=1.0)]))
        assert [list(outcomes) for outcomes in await asyncio.gather(*waiting)] == [["a"], ["a"]]

    assert await cyclic_garbage(run) == 0


async def test_a_single_rollout_gives_its_attempt_with_or_without_rewards(setting: Setting) -> None:
    call = setting.begin("a", single=True)
    assert isinstance(setting.sent[0], RunRollout)
    setting.hear(ended("a"), outcome("a", rewards=None), CallDone(call=1))
    assert call.attempt is not None
    assert call.attempt.rewards is None
    assert result(call)[0].outcome.rewards == {}


async def test_a_dataset_is_its_ids_in_order(setting: Setting) -> None:
    task = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), 5, CallScope({})))
    assert isinstance(await setting.sent_message(CreateDataset), CreateDataset)
    setting.hear(DatasetPart(call=1, ids=["a", "b"]), DatasetPart(call=1, ids=["a"]), CallDone(call=1))
    assert await task == (1, ["a", "b", "a"])


async def test_calls_are_numbered_and_answered_each_on_its_own(setting: Setting) -> None:
    first, second = setting.begin("a"), setting.begin("a")
    assert setting.it.load == 2
    assert set(setting.it.scopes) == {1, 2}
    setting.hear(outcome("a", call=2, termination_reason="second"), CallDone(call=2))
    setting.hear(outcome("a", call=1, termination_reason="first"), CallDone(call=1))
    assert reasons(first) == [("first", "environment")]
    assert reasons(second) == [("second", "environment")]


async def test_what_the_worker_raised_raises_with_its_text(setting: Setting) -> None:
    call = setting.begin("a")
    setting.hear(outcome("a"), CallFailed(call=1, failure=FAILURE))
    error = call.future.exception()
    assert isinstance(error, RemoteError)
    assert str(error) == "group 'a' raised pkg.Broken: it broke"
    assert error.remote_type == "pkg.Broken"
    assert error.remote_traceback == error.detail == "Traceback: ..."


async def test_output_outside_of_rollouts_goes_to_the_listener(setting: Setting) -> None:
    setting.begin("a")
    setting.hear(log("loading", call=None), log("in the call", call=1), log("", call=None, dropped=4))
    assert [line.text for line in setting.output] == ["loading", "in the call", "… 4 lines left out …"]


async def test_output_of_a_call_that_is_over_goes_to_the_listener_too(setting: Setting) -> None:
    call = setting.begin("a")
    setting.hear(outcome("a"), CallDone(call=1), log("a thread that stayed", "a"))
    assert result(call)[0].logs == ()
    assert [line.text for line in setting.output] == ["a thread that stayed"]


async def test_every_text_of_a_worker_is_cleaned(setting: Setting) -> None:
    setting.redactor.learn("Bearer secret-token")
    call = setting.begin("a", single=True)
    transcript = json.dumps([{"content": "secret-token", "secret-token": 1}]).replace("secret", "s\\u0065cret")
    setting.hear(
        log("secret-token", "a", logger="x.secret-token"),
        log("secret-token", call=None),
        Transcript(call=1, rollout_id="a", messages=transcript.encode()),
        outcome("a", termination_reason="secret-token", rewards=b'{"secret-token":1}', error="secret-token"),
        CallDone(call=1),
    )
    assert "secret-token" not in repr(result(call))
    assert "secret-token" not in repr(setting.output)
    short = setting.begin("a")
    setting.hear(GroupDone(call=2, outcomes=[plain("secret-token", rewards={"a secret-token": 1})]))
    assert "secret-token" not in repr(result(short))
    failing = setting.begin("b")
    failure = RemoteFailure(type="secret-token", message="secret-token", traceback="secret-token")
    setting.hear(CallFailed(call=3, failure=failure))
    error = failing.future.exception()
    assert error is not None
    assert "secret-token" not in f"{error}{vars(error)}"


# -- what no honest worker says -------------------------------------------------------------------------------


def many(count: int) -> bytes:
    return json.dumps({f"{number:x}": 1 for number in range(count)}).encode()


LIES: list[tuple[str, Sequence[Any], str]] = [
    ("an outcome of another rollout", [outcome("z")], "rollout 'z' does not belong to group 'a'"),
    ("an outcome of another call", [outcome("a", call=2)], "call 2, which is not in flight"),
    ("an outcome of the construction", [outcome("a", call=0)], "call 0, which is not in flight"),
    ("two outcomes", [outcome("a"), outcome("a")], "has two outcomes"),
    ("the end before the outcomes", [outcome("a"), CallDone(call=1)], "without an outcome for ['b']"),
    ("two ends", [outcome("a"), outcome("b"), CallDone(call=1), CallDone(call=1)], "not in flight"),
    ("an outcome after the end", [CallFailed(call=1, failure=FAILURE), outcome("a")], "not in flight"),
    ("one message with too few outcomes", [GroupDone(call=1, outcomes=[plain()])], "end of group 'a' with 1 outcomes"),
    ("one message with too many", [GroupDone(call=1, outcomes=[plain()] * 3)], "end of group 'a' with 3 outcomes"),
    ("one message after an outcome", [outcome("a"), GroupDone(call=1, outcomes=[plain()] * 2)], "unexpected end"),
    ("one message, and the end", [GroupDone(call=1, outcomes=[plain()] * 2), CallDone(call=1)], "not in flight"),
    (
        "one message for a rollout that ended before",
        [ended("a"), GroupDone(call=1, outcomes=[plain(seconds=1.0), plain()])],
        "rollout 'a' ended twice",
    ),
    ("a blank reason in short", [GroupDone(call=1, outcomes=[plain(" "), plain()])], "is not valid"),
    ("a blank name in short", [GroupDone(call=1, outcomes=[plain(), plain(rewards={" ": 1})])], "is not valid"),
    ("no rewards in a group", [outcome("a", rewards=None)], "has no rewards"),
    ("rewards that are no JSON", [outcome("a", rewards=b"{")], "is not valid"),
    ("rewards that are no object", [outcome("a", rewards=b"[1]")], "is not valid"),
    ("rewards that are no numbers", [outcome("a", rewards=b'{"x":"1"}')], "is not valid"),
    ("rewards that are booleans", [outcome("a", rewards=b'{"x":true}')], "is not valid"),
    ("rewards that are not finite", [outcome("a", rewards=b'{"x":1e999}')], "is not valid"),
    ("rewards that are NaN", [outcome("a", rewards=b'{"x":NaN}')], "is not valid"),
    ("rewards too large for a float", [outcome("a", rewards=b'{"x":' + b"9" * 400 + b"}")], "is not valid"),
    ("rewards nested deeply", [outcome("a", rewards=b'{"x":' + b"[" * 100_000)], "is not valid"),
    ("rewards that are not UTF-8", [outcome("a", rewards=b'{"\xff":1}')], "is not valid"),
    ("a blank name of a reward", [outcome("a", rewards=b'{" ":1}')], "is not valid"),
    ("a blank reason", [outcome("a", termination_reason=" ")], "is not valid"),
    ("a blank error", [outcome("a", error="")], "is not valid"),
    ("the runner's word for a good end", [outcome("a", origin="runner")], "is not one that the runner chooses"),
    (
        "the runner's word for a reason of its own",
        [outcome("a", origin="runner", termination_reason="worker_lost", rewards=b"{}")],
        "is not one that the runner chooses",
    ),
    (
        "the runner's word with rewards",
        [outcome("a", origin="runner", termination_reason="rollout_timeout")],
        "is not one that the runner chooses",
    ),
    ("a rollout that ended twice", [ended("a"), ended("a")], "rollout 'a' ended twice"),
    ("a rollout that ended twice at once", [ended("a", "a")], "rollout 'a' ended twice"),
    ("the end of another rollout", [ended("z")], "does not belong"),
    ("fewer seconds than rollouts", [RolloutsEnded(call=1, rollouts=["a", "b"], seconds=[1.0])], "as many seconds"),
    ("a transcript of another rollout", [Transcript(call=1, rollout_id="z", messages=b"[]")], "does not belong"),
    ("two transcripts", [Transcript(call=1, rollout_id="a", messages=b"[]")] * 2, "two transcripts"),
    ("a log line of another rollout", [log("x", "z")], "does not belong"),
    ("a log line of a call that never was", [log("x", "a", call=2)], "not in flight"),
    ("a log line of the construction as a call", [log("x", "a", call=0)], "not in flight"),
    ("a log line of more rollouts than there are", [log("x", "a", "a", "b")], "names 3 rollouts of group 'a'"),
    ("more rewards than cross", [outcome("a", rewards=many(MAX_REWARD_COMPONENTS + 1))], "10001 rewards, expected"),
    ("ids for a group", [DatasetPart(call=1, ids=["x"])], "no create_dataset"),
]


@pytest.mark.parametrize(("messages", "text"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
async def test_a_lie_is_refused(setting: Setting, messages: Sequence[Any], text: str) -> None:
    setting.begin("a", "b")
    setting.hear(*messages[:-1])
    with pytest.raises(FrameError) as caught:
        setting.hear(messages[-1])
    assert text in str(caught.value)


async def test_messages_about_rollouts_for_a_dataset_are_refused(setting: Setting) -> None:
    task = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), None, CallScope({})))
    await setting.sent_message(CreateDataset)
    about_rollouts = (
        outcome("a"),
        ended("a"),
        Transcript(call=1, rollout_id="a", messages=b"[]"),
        GroupDone(call=1, outcomes=[plain()]),
    )
    for message in about_rollouts:
        with pytest.raises(FrameError, match="a message about rollouts for create_dataset"):
            setting.hear(message)
    setting.hear(CallDone(call=1))
    assert await task == (1, [])


async def test_one_message_for_a_single_rollout_is_refused(setting: Setting) -> None:
    setting.begin("a", single=True)
    with pytest.raises(FrameError, match="unexpected end of rollout 'a'"):
        setting.hear(GroupDone(call=1, outcomes=[plain()]))


DEEP = b"[" * (MAX_TRANSCRIPT_DEPTH + 1) + b"]" * (MAX_TRANSCRIPT_DEPTH + 1)


@pytest.mark.parametrize("messages", [b"", b"{}", b"[", b"\xff", b"[NaN]", b"[" * 100_000, DEEP])
async def test_a_transcript_that_is_none_is_dropped_and_the_outcome_stands(setting: Setting, messages: bytes) -> None:
    call = setting.begin("a")
    setting.hear(Transcript(call=1, rollout_id="a", messages=messages), outcome("a"), CallDone(call=1))
    assert result(call)[0].transcript is None
    assert reasons(call) == [("finished", "environment")]


# -- the death of a worker ------------------------------------------------------------------------------------


async def test_when_the_worker_dies_outcomes_that_came_stand_and_the_others_get_one(setting: Setting) -> None:
    call = setting.begin("a", "b")
    setting.hear(ended("a"), outcome("a"))
    setting.it.died(Death("The worker ended by SIGSEGV (-11)."))
    assert reasons(call) == [("finished", "environment"), ("sandbox_error", "runner")]
    assert result(call)[1].outcome == RolloutOutcome({}, "sandbox_error", "The worker ended by SIGSEGV (-11).")
    assert result(call)[1].infrastructure


async def test_when_the_worker_dies_a_dataset_raises(setting: Setting) -> None:
    task = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), None, CallScope({})))
    await setting.sent_message(CreateDataset)
    setting.it.died(Death("It ended."))
    with pytest.raises(WorkerLostError, match=r"create_dataset\('eval'\): It ended\."):
        await task


async def test_when_the_worker_dies_for_the_sake_of_another_call_the_rollouts_are_lost(setting: Setting) -> None:
    call = setting.begin("a")
    setting.it.died(Death("It was killed.", killed_for=9))
    assert reasons(call) == [("worker_lost", "runner")]


async def test_when_the_worker_dies_nothing_is_left_in_flight(setting: Setting) -> None:
    setting.begin("a")
    setting.it.died(Death("x"))
    assert setting.it.load == 0
    assert setting.it.scopes == {}
    with pytest.raises(FrameError, match="not in flight"):
        setting.hear(outcome("a"))


# -- deadlines ------------------------------------------------------------------------------------------------


async def test_a_worker_that_ignores_a_rollouts_deadline_is_killed_and_only_late_rollouts_time_out() -> None:
    setting = Setting(Limits(rollout_s=0.01, cancel_grace_s=0.01))
    call = setting.begin("a", "b")
    other = setting.begin("c")
    setting.hear(ended("a"))
    expire = await setting.sent_message(Expire)
    assert expire == Expire(call=1, reason="rollout_timeout", message="The rollout did not end within 0.01 s.")
    await setting.killed.wait()
    setting.it.died(Death("It was killed.", setting.it.killed_for))
    assert reasons(call) == [("worker_lost", "runner"), ("rollout_timeout", "runner")]
    assert "did not end within 0.01 s. It was killed." in str(result(call)[1].outcome.error)
    assert reasons(other)[0][0] in ("worker_lost", "rollout_timeout")


async def test_a_worker_that_heeds_a_rollouts_deadline_says_itself_how_each_ended() -> None:
    setting = Setting(Limits(rollout_s=0.01, cancel_grace_s=60))
    call = setting.begin("a", "b")
    await setting.sent_message(Expire)
    late = outcome("b", termination_reason="rollout_timeout", rewards=b"{}", error="late", origin="runner")
    setting.hear(ended("a", "b"), outcome("a"), late, CallDone(call=1))
    assert reasons(call) == [("finished", "environment"), ("rollout_timeout", "runner")]


async def test_a_call_that_fails_because_of_our_deadline_is_settled_with_it() -> None:
    setting = Setting(Limits(rollout_s=0.01, cancel_grace_s=60))
    call = setting.begin("a", "b")
    await setting.sent_message(Expire)
    setting.hear(CallFailed(call=1, failure=FAILURE))
    assert reasons(call) == [("rollout_timeout", "runner")] * 2


async def test_scoring_has_a_deadline_of_its_own_from_the_end_of_the_last_rollout() -> None:
    setting = Setting(Limits(rollout_s=60, scoring_s=0.01, cancel_grace_s=0.01))
    call = setting.begin("a", "b")
    setting.hear(ended("a"), ended("b"))
    assert (await setting.sent_message(Expire)).reason == "group_timeout"
    await setting.killed.wait()
    setting.it.died(Death("It was killed.", setting.it.killed_for))
    assert reasons(call) == [("group_timeout", "runner")] * 2


async def test_a_call_that_fails_after_its_rollouts_ended_in_time_raises_what_the_worker_raised() -> None:
    setting = Setting(Limits(rollout_s=0.01, cancel_grace_s=60, scoring_s=60))
    call = setting.begin("a")
    await setting.sent_message(Expire)
    setting.hear(ended("a"), CallFailed(call=1, failure=FAILURE))
    assert isinstance(call.future.exception(), RemoteError)


async def test_an_answer_stops_the_deadline() -> None:
    setting = Setting(Limits(rollout_s=0.02, cancel_grace_s=0.02))
    setting.begin("a")
    setting.hear(outcome("a"), CallDone(call=1))
    other = setting.begin("b")
    await setting.sent_message(Expire)
    assert [message.call for message in setting.sent if isinstance(message, Expire)] == [2]
    setting.it.died(Death("x"))
    assert other.future.done()


# -- cancellation ---------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_cancels_in_the_worker_and_waits_for_its_answer(setting: Setting) -> None:
    call = setting.begin("a")
    task = asyncio.ensure_future(setting.it.finish(call))
    await asyncio.sleep(0)
    task.cancel()
    assert (await setting.sent_message(Cancel)).call == 1
    assert not task.done()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    setting.hear(CallFailed(call=1, failure=FAILURE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not setting.killed.is_set()


async def test_a_worker_that_ignores_a_cancellation_is_killed() -> None:
    setting = Setting(Limits(cancel_grace_s=0.01))
    call = setting.begin("a")
    task = asyncio.ensure_future(setting.it.finish(call))
    await asyncio.sleep(0)
    task.cancel()
    await setting.killed.wait()
    setting.it.died(Death("It was killed.", setting.it.killed_for))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_requests_that_fit_no_message_are_refused_and_nothing_is_in_flight() -> None:
    from runner.protocol import encode

    setting = Setting()
    conversation = Conversation(
        lambda message: setting.sent.append(message) if encode(message) else None,
        setting.look,
        setting.killed.set,
        Limits(),
        setting.redactor,
        setting.output.append,
        setting.ended.append,
    )
    with pytest.raises(FrameError, match="length <= 4096"):
        conversation.begin([request("x" * 5000)], [Position(1, 0)], CallScope({}))
    assert conversation.load == 0
    assert conversation.scopes == {}


async def test_a_dataset_call_ends_like_any_other() -> None:
    call = DatasetCall(1, CallScope({}), "create_dataset('eval')", Limits())
    call.failed(FAILURE, Redactor())
    call.done()
    assert isinstance(call.future.exception(), RemoteError)
