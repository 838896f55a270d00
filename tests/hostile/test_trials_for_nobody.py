"""A worker that asks for sandboxes by itself gets those that its rollouts were meant to get, and nothing more."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import Example, RolloutRequest
from runner import trial_link
from runner.conversation import Position
from runner.limits import Limits
from tests.integration.isolation import until
from tests.unit.test_child import Setting
from tests.unit.test_child import setting as setting

pytestmark = pytest.mark.integration

ASKING = """
import json, struct
trials = socket.socket(fileno=TRIAL_FD)
auth_parser, auth_decoder, came = FrameParser(), auth_to_worker_decoder(), []

def answer():
    while not came:
        came.extend(auth_decoder.decode(body) for body in auth_parser.feed(auth.recv(65536)))
    return came.pop(0)

def wanted(number, call, rollout="r", network=False):
    return OpenTrial(
        request=number, call=call, rollout=rollout, cpus=None, memory_bytes=None, disk_bytes=None, network=network
    )

def ask(*requests):
    auth.sendall(b"".join(encode(request) for request in requests))

def fetched():
    data, descriptors, _, _ = socket.recv_fds(trials, 8, 1)
    return TRIAL_NUMBER.unpack(data)[0], socket.socket(fileno=descriptors[0])

def ready_word(stream):
    size = struct.unpack(">I", stream.recv(4, socket.MSG_WAITALL))[0]
    return json.loads(stream.recv(size, socket.MSG_WAITALL)[1:])

say(hello, ready)
call = hear(RunGroup).call
"""


@pytest.fixture(autouse=True)
def sandboxes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Where sandboxes have their folders; none may be left."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield folder
        assert [path.name for path in folder.glob("benchmax-trial-*")] == []
        monkeypatch.undo()


async def told(setting: Setting, body: str, limits: Limits | None = None) -> str:
    """Run a worker that says what it found as its rollout's error."""
    child = await setting.start(f"{ASKING}{body}\nsay(outcome(call, error=str(found)), CallDone(call=call))", limits)
    record = await setting.run(child)
    text = record.outcome.error or ""
    await child.end(0)
    return text


async def test_a_rollout_that_runs_gets_one_and_it_ends_with_the_worker(setting: Setting, sandboxes: Path) -> None:
    text = await told(
        setting,
        "ask(wanted(7, call)); said = answer(); number, stream = fetched()\nfound = said, number, ready_word(stream)",
    )
    assert text.startswith("(TrialOpened(request=7), 7, {'ready': True")
    assert "'network': False" in text


@pytest.mark.parametrize(
    "request_", ["wanted(7, call, 'stranger')", "wanted(7, call + 1)", "wanted(7, 0)", "wanted(7, 2**62)"]
)
async def test_nobody_else_gets_one(setting: Setting, request_: str) -> None:
    text = await told(setting, f"ask({request_}); found = answer()")
    assert text.startswith("TrialRefused(request=7, message=")
    assert "runs in this call" in text


async def test_a_rollout_that_has_run_gets_none(setting: Setting, tmp_path: Path) -> None:
    go = tmp_path / "go"
    child = await setting.start(f"""{ASKING}
say(RolloutsEnded(call=call, rollouts=['r'], seconds=[1.0]))
while not os.path.exists({str(go)!r}):
    time.sleep(0.005)
ask(wanted(7, call))
say(outcome(call, error=str(answer())), CallDone(call=call))""")
    running = asyncio.ensure_future(setting.run(child))
    # its call is under way then
    await asyncio.sleep(0)
    await until(lambda: not child.conversation.runs(1, "r"), what="the rollout to have run")
    go.touch()
    assert "no rollout 'r' runs in this call" in ((await running).outcome.error or "")


async def test_a_worker_gets_no_more_at_once_than_its_limit_says_and_the_next_when_one_is_gone(
    setting: Setting,
) -> None:
    body = """
ask(wanted(7, call)); first = answer(); number, stream = fetched()
stream.close(); ask(wanted(8, call))
found = first, answer(), ready_word(fetched()[1])
"""
    text = await told(setting, body, Limits(trial_sandboxes=1))
    assert text.startswith("(TrialOpened(request=7), TrialOpened(request=8), {'ready': True")


async def test_a_rollout_that_is_cancelled_waits_no_more_and_is_told_once(setting: Setting, tmp_path: Path) -> None:
    waits, heard = tmp_path / "waits", tmp_path / "heard"
    body = f"""{ASKING}
ask(wanted(7, call)); answer(); number, stream = fetched()
# what is asked for later is answered before
ask(wanted(8, call, 's'), wanted(9, call, 'stranger')); said = [answer().request]
open({str(waits)!r}, 'w').close()
hear(Cancel)
said.append(answer())
ask(wanted(10, call, 's')); said.append(answer().request)
with open({str(heard)!r}, 'w') as file:
    file.write(str(said))
say(outcome(call), outcome(call, rollout_id='s'), CallDone(call=call))"""
    child = await setting.start(body, Limits(trial_sandboxes=1))
    requests = [
        RolloutRequest(name, Example("e", None), "m", "http://model", StaticBearerAuth("own-token"), "eval")
        for name in ("r", "s")
    ]
    call = child.conversation.begin(requests, [Position(1, 0)] * 2, setting.broker.scope(requests))
    running = asyncio.ensure_future(child.conversation.finish(call))
    await until(waits.exists, what="the request to wait")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard.read_text() == ("[9, TrialRefused(request=8, message=\"no rollout 's' runs in this call.\"), 10]")


async def test_asking_without_end_ends_the_worker(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_link, "MAX_TRIAL_REQUESTS", 3)
    child = await setting.start(f"{ASKING}ask(*(wanted(k, call) for k in range(4)))")
    record = await setting.run(child)
    assert record.outcome.termination_reason == "sandbox_error"
    assert "more than 3 requests for sandboxes at once" in (record.outcome.error or "")
