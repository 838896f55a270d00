"""A bundle that speaks on its worker's channels itself: what no honest worker says ends that worker, and it only."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmax.envs import Dataset, RolloutOutcome
from runner import IsolatedEnvironment
from runner.fields import PlainOutcome, RemoteFailure
from runner.limits import MAX_FRAME_BYTES, MAX_TRANSCRIPT_VALUES
from runner.protocol import (
    PROTOCOL,
    CallDone,
    CallFailed,
    Cancel,
    Close,
    Closed,
    DatasetPart,
    GroupDone,
    Headers,
    Hello,
    Loaded,
    Log,
    Outcome,
    Ready,
    RolloutsEnded,
    StartFailed,
    Transcript,
    encode,
)
from runner.provision import Cache
from tests.hostile.environments import speaking
from tests.integration.isolation import bundled, run_one, unconfined, until

pytestmark = pytest.mark.integration

CALL = 3
"""Number of the call that lies: in a fresh worker the dataset is the first one and an honest group the second."""

FAILURE = RemoteFailure(type="T", message="m")


def outcome(**changes: Any) -> Outcome:
    fields = {"call": CALL, "rollout_id": "r-0", "termination_reason": "finished", "rewards": b'{"x":1}', **changes}
    return Outcome(**fields)


def ended(*rollouts: str, call: int = CALL) -> RolloutsEnded:
    return RolloutsEnded(call=call, rollouts=list(rollouts), seconds=[0.5] * len(rollouts))


def log(*rollouts: str, text: str = "x", call: int | None = CALL) -> Log:
    return Log(call=call, rollouts=list(rollouts), stream="log", level=40, logger="l", text=text)


def raw(value: object) -> bytes:
    """A frame around anything that msgpack can hold."""
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


def said(*messages: Any) -> bytes:
    return b"".join(encode(message) for message in messages)


HELLO = Hello(protocol=PROTOCOL, python="3.12", benchmax="0.2.0")
READY = Ready(environment="E", scorable_termination_reasons=["x"], requires_public_model_endpoint=False, diagnostics=[])
PLAIN = PlainOutcome(termination_reason="finished", rewards={"x": 1.0})
NAN = float("nan")
WORK: dict[str, tuple[bytes, str]] = {
    "a pickle": (struct.pack(">I", 1000) + pickle.dumps([1] * 500)[:1000].ljust(1000, b"."), "not a valid message"),
    "a line of text": (b"Loading weights: 100%\n", "a frame announces 1282367844 bytes, expected at most 67108864"),
    "no bytes": (struct.pack(">I", 0), "a frame announces 0 bytes, expected at least 1"),
    "a byte too many": (
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        f"a frame announces {MAX_FRAME_BYTES + 1} bytes, expected at most {MAX_FRAME_BYTES}",
    ),
    "a message of the other direction": (said(Cancel(call=CALL)), "Invalid value 'cancel'"),
    "the last message of the other direction": (said(Close()), "Invalid value 'close'"),
    "a message of the other channel": (said(Headers(request=1, headers={})), "Invalid value 'headers'"),
    "an extension type": (raw({"op": "call-done", "call": msgspec.msgpack.Ext(1, b"x")}), "Expected `int`, got `ext`"),
    "another type": (raw({"op": "call-done", "call": "2"}), "Expected `int`, got `str`"),
    "an unknown field": (raw({"op": "call-done", "call": CALL, "also": 1}), "unknown field `also`"),
    "an unknown message": (raw({"op": "\x1b[2J"}), "Invalid value '\\x1b[2J'"),
    "deep nesting": (
        struct.pack(">I", 100_001) + b"\x91" * 100_000 + b"\xc0",
        "not a valid message",
    ),
    "seconds that are no number": (
        raw({"op": "rollouts-ended", "call": CALL, "rollouts": ["r-0"], "seconds": [NAN]}),
        "Expected `float`",
    ),
    "a lone surrogate": (
        raw({"op": "call-failed", "call": CALL}).replace(b"call-failed", b"call-fail\xed\xa0"),
        "not a valid message",
    ),
    "a second hello": (said(HELLO), "a second hello"),
    "a second ready": (said(READY), "a ready message out of turn"),
    "a failed start": (said(StartFailed(phase="load", failure=FAILURE)), "a start-failed message out of turn"),
    "the end": (said(Closed()), "a closed message out of turn"),
    "modules three times": (said(*[Loaded(modules=["a.py"])] * 3), "a loaded message out of turn"),
    "a call that never was": (said(CallDone(call=99)), "a message for call 99, which is not in flight"),
    "a call that is over": (said(CallDone(call=1)), "a message for call 1, which is not in flight"),
    "the construction as a call": (said(CallFailed(call=0, failure=FAILURE)), "a message for call 0"),
    "ids for a group": (said(DatasetPart(call=CALL, ids=["x"])), "example ids for a call that is no create_dataset"),
    "the end before the outcomes": (said(outcome(), CallDone(call=CALL)), "ended without an outcome for ['r-1']"),
    "the end with an outcome too few": (said(GroupDone(call=CALL, outcomes=[PLAIN])), "unexpected end of group 'r-0'"),
    "the end with an outcome too many": (said(GroupDone(call=CALL, outcomes=[PLAIN] * 3)), "with 3 outcomes"),
    "the end with a reward that is no number": (
        raw({"op": "group-done", "call": CALL, "outcomes": [{"termination_reason": "x", "rewards": {"x": NAN}}] * 2}),
        "not a valid message",
    ),
    "two outcomes of a rollout": (said(outcome(), outcome()), "rollout 'r-0' has two outcomes"),
    "an outcome of a rollout of somebody else": (said(outcome(rollout_id="s-0")), "rollout 's-0' does not belong"),
    "a reward that is no number": (said(outcome(rewards=b'{"x":NaN}')), "is not valid"),
    "a reward that is infinite": (said(outcome(rewards=b'{"x":1e999}')), "is not valid"),
    "a reward that is a truth value": (said(outcome(rewards=b'{"x":true}')), "is not valid"),
    "the runner's word": (said(outcome(origin="runner")), "is not one that the runner chooses"),
    "a rollout that ended twice": (said(ended("r-0"), ended("r-0")), "rollout 'r-0' ended twice"),
    "two transcripts": (
        said(*[Transcript(call=CALL, rollout_id="r-0", messages=b"[]")] * 2),
        "rollout 'r-0' sent two transcripts",
    ),
    "a transcript that grows": (
        said(Transcript(call=CALL, rollout_id="r-0", messages=b"[" + b"[]," * MAX_TRANSCRIPT_VALUES + b"0]")),
        f"values, expected at most {MAX_TRANSCRIPT_VALUES}",
    ),
    "a log line of a rollout of somebody else": (said(log("s-0")), "rollout 's-0' does not belong"),
    "a log line of more rollouts than there are": (said(log("r-0", "r-0", "r-1")), "names 3 rollouts of group 'r-0'"),
    "more log lines than any rollout may have": (said(*[log("r-0", text="x" * 1000)] * 2000), "beyond the limits"),
    "more log lines than there may be outside": (said(*[log(call=None, text="x" * 1000)] * 3000), "beyond the limits"),
}
AUTH: dict[str, tuple[bytes, str]] = {
    "an answer that nobody asked for": (said(Headers(request=1, headers={"a": "b"})), "Invalid value 'headers'"),
    "a hello": (said(HELLO), "Invalid value 'hello'"),
    "no bytes": (struct.pack(">I", 0), "a frame announces 0 bytes"),
    "a pickle": (struct.pack(">I", 100) + bytes(100), "Expected `object`, got `int`"),
}


BATCHES = 4
"""Each has an environment of its own, whose worker is replaced after every lie."""


async def told(env: IsolatedEnvironment, dataset: Dataset[Any], name: str) -> tuple[str, Mapping[str, RolloutOutcome]]:
    """Run a group of the example whose rollouts lie; return how its worker ended, and the outcomes."""
    before = len(env.deaths)
    outcomes = await run_one(env, dataset, name, count=2, prefix="r")
    await until(lambda: len(env.deaths) > before, what=f"the end of the worker that lied ({name})")
    return env.deaths[-1], outcomes


async def honest(env: IsolatedEnvironment, dataset: Dataset[Any]) -> None:
    """Run a group that says nothing of its own, in a fresh worker if the last one lied."""
    outcomes = await run_one(env, dataset, "honest", count=2)
    assert [outcome.rewards for outcome in outcomes.values()] == [{"x": 1.0}] * 2


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_a_lie_on_the_work_channel_ends_that_worker_and_the_next_one_is_fine(
    shared_cache: Path, tmp_path: Path, batch: int
) -> None:
    cases = dict(list(WORK.items())[batch::BATCHES])
    (tmp_path / "honest.txt").touch()
    for name, (data, _) in cases.items():
        (tmp_path / f"{name}.work").write_bytes(data)
    async with unconfined(bundled(speaking, "Speaking"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        for name, (_, text) in cases.items():
            await honest(env, dataset)
            death, outcomes = await told(env, dataset, name)
            assert death.startswith("The worker broke the protocol and was killed: "), name
            assert text in death, name
            assert len(death) < 700
            assert death.isprintable()
            last = outcomes["r-1"]
            assert (last.termination_reason, last.rewards) == ("sandbox_error", {}), name
            assert text in str(last.error), name
        await honest(env, dataset)


async def test_a_lie_on_the_auth_channel_ends_that_worker_too(shared_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "honest.txt").touch()
    for name, (data, _) in AUTH.items():
        (tmp_path / f"{name}.auth").write_bytes(data)
    async with unconfined(bundled(speaking, "Speaking"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        for name, (_, text) in AUTH.items():
            await honest(env, dataset)
            death, _ = await told(env, dataset, name)
            assert death.startswith("The worker broke the protocol and was killed: "), name
            assert text in death, name
        await honest(env, dataset)
