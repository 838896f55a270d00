"""The caller against workers that lie, hang and die at awkward moments: always an answer, always an end."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import BundleMetadata
from benchmax.envs.shared_types import Example, RolloutRequest
from runner import process as process_module
from runner.broker import Broker
from runner.child import Child
from runner.conversation import Position
from runner.errors import RemoteError, WorkerEnd, WorkerLostError, WorkerStartError
from runner.launch import Launch
from runner.limits import Limits
from runner.record import RolloutRecord, StallEvent, Watcher
from runner.redaction import Redactor
from runner.sandbox.policy import SandboxPolicy

ROOT = Path(__file__).parents[2]
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"

LIAR = """
import os, signal, socket, sys, time
sys.path.insert(0, {root!r})
from runner.frames import FrameParser
from runner.protocol import *
work, auth = socket.socket(fileno=WORK_FD), socket.socket(fileno=AUTH_FD)
failure = RemoteFailure(type="T", message="m")
hello = Hello(protocol=PROTOCOL, python={series!r}, benchmax="0.2.6")
ready = Ready(environment="E", scorable_termination_reasons=[], requires_public_model_endpoint=False, diagnostics=[])
closed = Closed()
stalled = Stalled(call=1, rollouts=["r"], seconds=3.0, where="env.py:1 in f", stack="", over=False)

def say(*messages):
    for message in messages:
        work.sendall(encode(message))

decoder, parser = to_worker_decoder(), FrameParser()

def hear(kind):
    while True:
        for body in parser.feed(work.recv(65536)):
            message = decoder.decode(body)
            if isinstance(message, kind):
                return message

def outcome(call, **changes):
    fields = dict(rollout_id="r", termination_reason="finished", rewards=b'{{"x":1}}')
    return Outcome(call=call, **{{**fields, **changes}})

{body}
time.sleep(600)
"""


class Setting:
    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.redactor = Redactor()
        self.broker = Broker(None, self.redactor)
        self.children: list[Child] = []
        self.ends: list[WorkerEnd] = []
        self.stalls: list[StallEvent] = []

    async def start(self, body: str, limits: Limits | None = None) -> Child:
        boot = self.tmp_path / "boot.py"
        boot.write_text(LIAR.format(root=str(ROOT), series=SERIES, body=body))
        launch = Launch(
            python=Path(sys.executable),
            prefix=Path(sys.base_prefix),
            boot=boot,
            pickled=b"pickle",
            metadata=BundleMetadata((), SERIES, "0.2.1", None),
            policy=SandboxPolicy(),
            limits=limits or Limits(),
        )
        watcher = Watcher(
            output=lambda _: None,
            ended=lambda _: None,
            death=self.ends.append,
            loaded=lambda _: None,
            stalled=self.stalls.append,
        )
        child = await Child.start(launch, self.broker, self.redactor, watcher)
        self.children.append(child)
        return child

    async def run(self, child: Child) -> RolloutRecord:
        request = RolloutRequest("r", Example("e", None), "m", "http://model", StaticBearerAuth("own-token"), "eval")
        call = child.conversation.begin([request], [Position(1, 0)], self.broker.scope([request]))
        await child.conversation.finish(call)
        (record,) = call.records()
        return record


@pytest.fixture
async def setting(tmp_path: Path) -> Any:
    setting = Setting(tmp_path)
    yield setting
    for child in setting.children:
        await child.end(0)


# -- before it is ready ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("say(ready)", "a ready message, expected hello first"),
        ("say(StartFailed(phase='load', failure=failure))", "a start-failed message, expected hello first"),
        ("say(hello, hello)", "a second hello"),
        ("say(hello, closed)", "a closed message out of turn"),
        ("say(hello, Loaded(modules=['a.py']))", "a loaded message out of turn"),
        ("say(hello, outcome(1))", "a message for call 1, which is not in flight"),
        ("say(hello, CallDone(call=0))", "a message for call 0, which is not in flight"),
        ("say(Hello(protocol=PROTOCOL + 1, python=hello.python, benchmax='1'))", "speaks protocol 3 on Python"),
        ("say(Hello(protocol=PROTOCOL, python='2.7', benchmax='0.2'))", "on Python 2.7 with benchmax 0.2, expected"),
        (
            "say(Hello(protocol=PROTOCOL, python=hello.python, benchmax='0.3.1'))",
            "benchmax 0.3, expected protocol 2 on",
        ),
        ("say(Hello(protocol=PROTOCOL, python=hello.python, benchmax='\x1b['))", "benchmax '\\x1b[', expected"),
        (
            "say(Log(call=None, rollouts=[], stream='log', level=9, logger='', text='x'))",
            "a log message, expected hello",
        ),
        ("work.sendall(b'hello world')", "a frame announces 1751477356 bytes"),
        ("work.sendall(b'\\0\\0\\0\\0')", "a frame announces 0 bytes"),
        ("work.sendall(encode(Close()))", "Invalid value 'close'"),
        ("work.sendall(b'\\0\\0\\0\\5abc'); work.shutdown(socket.SHUT_WR)", "inside a frame's body"),
        ("auth.sendall(b'\\0\\0\\0\\0')", "a frame announces 0 bytes"),
    ],
)
async def test_a_worker_that_breaks_the_protocol_before_it_is_ready_cannot_be_started(
    setting: Setting, body: str, text: str
) -> None:
    with pytest.raises(WorkerStartError, match="broke the protocol and was killed") as caught:
        await setting.start(body)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("sys.exit(3)", "ended by exit code 3 while starting."),
        ("say(hello); print('last words'); sys.exit(3)", "exit code 3 while loading the bundle and constructing"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV (-11)"),
        ("os.kill(os.getpid(), 9)", "SIGKILL (-9) while starting. It may be out of memory"),
        ("work.close()", "ended by SIGKILL"),
    ],
)
async def test_a_worker_that_ends_before_it_is_ready_says_how(setting: Setting, body: str, text: str) -> None:
    with pytest.raises(WorkerStartError) as caught:
        await setting.start(body)
    assert text in str(caught.value)
    assert ("Last output: last words" in str(caught.value)) == ("last words" in body)


async def test_a_worker_that_is_never_ready_runs_out_of_time(setting: Setting) -> None:
    with pytest.raises(WorkerStartError, match=r"was not ready after 0\.5 s"):
        await setting.start("say(hello)", Limits(startup_s=0.5))


async def test_what_a_worker_raised_while_it_started_is_told_by_phase(setting: Setting) -> None:
    with pytest.raises(RemoteError, match="constructing the environment raised T: m"):
        await setting.start("say(hello, StartFailed(phase='construct', failure=failure))")


# -- with a rollout in flight ---------------------------------------------------------------------------------

READY = "say(hello, ready); call = hear(RunGroup).call; "


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("say(outcome(call), outcome(call))", "has two outcomes"),
        ("say(ready)", "a ready message out of turn"),
        ("say(StartFailed(phase='load', failure=failure))", "a start-failed message out of turn"),
        ("say(closed)", "a closed message out of turn"),
        ("say(*[Loaded(modules=['a.py'])] * 3)", "a loaded message out of turn"),
        ("say(CallDone(call=call))", "without an outcome"),
        ("say(outcome(call + 1))", "not in flight"),
        ("say(outcome(call, rollout_id='z'))", "does not belong"),
        ("work.sendall(b'\\xff' * 100)", "a frame announces 4294967295 bytes"),
        ("work.sendall(HEADER.pack(100_003) + b'\\x91' * 100_003)", "not a valid message"),
        ("auth.sendall(b'\\xff' * 100)", "a frame announces 4294967295 bytes"),
        ("auth.sendall(encode(hello))", "not a valid message"),
        ("auth.sendall(encode(Snapshot(call=1, rollout_id='r', stack='')))", "a snapshot message out of turn"),
        ("auth.sendall(encode(Inspected(inspection=1, where='', stack='')))", "an inspected message out of turn"),
        ("[auth.sendall(encode(stalled)) for _ in range(100)]", "more stalls than there was time for"),
    ],
)
async def test_a_lie_gives_the_rollout_in_flight_an_outcome_that_says_so(
    setting: Setting, body: str, text: str
) -> None:
    child = await setting.start(READY + body)
    record = await setting.run(child)
    assert (record.outcome.termination_reason in ("sandbox_error", "finished"), record.origin) in [
        (True, "runner"),
        (True, "environment"),
    ]
    assert child.death is not None
    assert "broke the protocol and was killed" in child.death
    assert text in child.death
    assert not child.alive
    if record.origin == "runner":
        assert text in str(record.outcome.error)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("os._exit(3)", "ended by exit code 3 with 1 rollout in flight"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV (-11) with 1 rollout in flight"),
        ("os.kill(os.getpid(), 9)", "It may be out of memory"),
        ("work.sendall(b'\\0\\0\\1\\0abc'); os.kill(os.getpid(), 9)", "ended by SIGKILL (-9) with 1 rollout in flight"),
        ("auth.sendall(b'\\0'); os._exit(4)", "ended by exit code 4 with 1 rollout in flight"),
        ("work.close()", "ended by SIGKILL"),
        ("work.shutdown(socket.SHUT_RDWR)", "ended by SIGKILL"),
        ("os.kill(os.getppid(), 9)", "an unknown end (its supervisor was killed)"),
    ],
)
async def test_a_death_gives_the_rollout_in_flight_an_outcome_that_says_how(
    setting: Setting, body: str, text: str
) -> None:
    child = await setting.start(READY + body)
    record = await setting.run(child)
    assert (record.outcome.termination_reason, record.origin) == ("sandbox_error", "runner")
    assert text in str(record.outcome.error)


async def test_what_was_sent_before_the_death_counts(setting: Setting) -> None:
    child = await setting.start(READY + "say(outcome(call)); os._exit(3)")
    record = await setting.run(child)
    assert (record.outcome.termination_reason, record.origin) == ("finished", "environment")
    assert record.outcome.rewards == {"x": 1}


async def test_what_was_sent_before_a_lie_counts_in_the_same_piece_too(setting: Setting) -> None:
    child = await setting.start(READY + "work.sendall(encode(outcome(call)) + bytes(4))")
    record = await setting.run(child)
    assert (record.outcome.termination_reason, record.origin) == ("finished", "environment")


async def test_a_worker_that_stops_its_supervisor_and_hangs_is_given_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "REAP_S", 0.1)
    limits = Limits(rollout_s=0.3, cancel_grace_s=0.1)
    child = await setting.start(READY + "os.kill(os.getppid(), signal.SIGSTOP)", limits)
    record = await setting.run(child)
    assert (record.outcome.termination_reason, record.origin) == ("rollout_timeout", "runner")


async def test_a_worker_that_stops_its_supervisor_and_goes_is_given_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "REAP_S", 0.1)
    child = await setting.start(READY + "os.kill(os.getppid(), signal.SIGSTOP); os._exit(0)")
    record = await setting.run(child)
    assert (record.outcome.termination_reason, record.origin) == ("sandbox_error", "runner")


# -- where it is ----------------------------------------------------------------------------------------------

ASKED = """
say(hello, ready)
call = hear(RunGroup).call
questions, parser_ = auth_to_worker_decoder(), FrameParser()

def asked():
    while True:
        for body in parser_.feed(auth.recv(65536)):
            return questions.decode(body)
"""


async def test_a_rollout_that_is_killed_has_the_stack_and_messages_that_the_worker_told_last(setting: Setting) -> None:
    body = (
        ASKED
        + """
for turn in range(2):
    question = asked()
    place = f"env.py:{turn} in f"
    messages = b'[{"turn":%d}]' % turn
    for message in (
        Snapshot(call=call, rollout_id="r", stack=place, messages=messages),
        # of a call that is over by now, and of the call itself
        Snapshot(call=0, rollout_id="r", stack="old"),
        Snapshot(call=call, rollout_id=None, stack="call"),
        Inspected(inspection=question.inspection, where=place, stack="main"),
    ):
        auth.sendall(encode(message))
"""
    )
    child = await setting.start(body, Limits(rollout_s=0.2, cancel_grace_s=0.2))
    record = await setting.run(child)
    assert record.outcome.termination_reason == "rollout_timeout"
    assert "was killed 0.2 s after it was asked to stop. It was at env.py:1 in f." in str(record.outcome.error)
    assert record.stack == "env.py:1 in f"
    assert record.transcript == [{"turn": 1}]
    assert [end.stack for end in setting.ends] == ["main"]


async def test_a_worker_that_does_not_say_where_it_is_is_killed_all_the_same(setting: Setting) -> None:
    child = await setting.start(READY, Limits(rollout_s=0.2, cancel_grace_s=0.2))
    record = await setting.run(child)
    assert record.outcome.termination_reason == "rollout_timeout"
    assert record.stack == ""


async def test_a_stall_is_told_with_the_rollouts_that_are_in_flight(setting: Setting) -> None:
    body = READY + (
        "auth.sendall(encode(stalled)); "
        "auth.sendall(encode(Stalled(call=call, rollouts=['z', 'r'], seconds=3.0, where='', stack='', over=False))); "
        "time.sleep(0.2); say(outcome(call), CallDone(call=call))"
    )
    child = await setting.start(body)
    await setting.run(child)
    assert [(stall.pid, stall.rollout_ids, stall.seconds) for stall in setting.stalls] == [(child.pid, ("r",), 3.0)] * 2


# -- header requests ------------------------------------------------------------------------------------------

ASK = """
say(hello, ready)
call = hear(RunGroup).call
def ask(number):
    return encode(HeaderRequest(request=number, call=call, binding=None, rollout="r", base_url="http://model",
                                model="m", rollout_id="r"))
"""


async def test_header_requests_are_answered_while_their_call_is_in_flight(setting: Setting) -> None:
    body = (
        ASK
        + """
answers, parser_ = auth_to_worker_decoder(), FrameParser()
def answer():
    while True:
        for body in parser_.feed(auth.recv(65536)):
            return answers.decode(body)
auth.sendall(ask(7))
first = answer()
say(outcome(call, error=f"{first.request} {first.headers}"), CallDone(call=call))
auth.sendall(ask(8))
print(type(answer()).__name__, flush=True)
"""
    )
    child = await setting.start(body)
    record = await setting.run(child)
    assert record.outcome.error == "7 {'Authorization': 'Bearer [redacted]'}"
    while "HeadersRefused" not in child.stdout.text():
        await asyncio.sleep(0.01)


async def test_a_flood_of_header_requests_ends_the_worker(setting: Setting) -> None:
    class Never:
        async def headers_for_request(self, context: Any) -> dict[str, str]:
            await asyncio.Event().wait()
            return {}

    body = ASK + "for number in range(20_000): auth.sendall(ask(number))"
    child = await setting.start(body)
    request = RolloutRequest("r", Example("e", None), "m", "http://model", Never(), "eval")
    call = child.conversation.begin([request], [Position(1, 0)], setting.broker.scope([request]))
    await child.conversation.finish(call)
    (record,) = call.records()
    assert "more than 10000 header requests at once" in str(record.outcome.error)


# -- the end --------------------------------------------------------------------------------------------------


async def test_closing_waits_for_the_workers_word_and_its_exit(setting: Setting) -> None:
    child = await setting.start("say(hello, ready); hear(Close); say(closed); sys.exit(0)")
    await child.close()
    assert child.death == "The worker ended by exit code 0 with no rollout in flight."


async def test_closing_raises_what_the_environment_raised(setting: Setting) -> None:
    child = await setting.start("say(hello, ready); hear(Close); say(Closed(failure=failure)); sys.exit(0)")
    with pytest.raises(RemoteError, match="aclose raised T: m"):
        await child.close()


@pytest.mark.parametrize(
    "body", ["say(hello, ready)", "signal.signal(signal.SIGTERM, signal.SIG_IGN); say(hello, ready)"]
)
async def test_closing_ends_a_worker_that_does_not_go_and_says_so(setting: Setting, body: str) -> None:
    child = await setting.start(body, Limits(shutdown_s=0.1))
    with pytest.raises(WorkerLostError, match=r"closing the environment did not end within 0\.1 s"):
        await child.close()
    assert child.death is not None
    assert setting.ends == []


async def test_closing_ends_a_worker_that_goes_on_talking(setting: Setting) -> None:
    child = await setting.start("say(hello, ready); hear(Close); say(closed, closed)")
    await child.close()
    assert child.death is not None


async def test_a_worker_that_goes_instead_of_closing_is_an_error_that_says_how(setting: Setting) -> None:
    child = await setting.start("say(hello, ready); hear(Close); os._exit(3)")
    with pytest.raises(WorkerLostError, match="closing the environment: The worker ended by exit code 3"):
        await child.close()
    # it was asked to go
    assert setting.ends == []


async def test_each_end_that_nobody_asked_for_is_told_once_with_all_that_is_known_of_it(setting: Setting) -> None:
    with pytest.raises(WorkerStartError):
        await setting.start("say(hello); print('last words'); sys.exit(3)")
    child = await setting.start(READY + "os.write(2, b'gone\\n'); os._exit(4)")
    await setting.run(child)
    await child.end()
    not_started, died = setting.ends
    assert (not_started.ready, not_started.code, not_started.exit) == (False, "worker-start", "exit code 3")
    assert not_started.output == ("last words",)
    assert (died.ready, died.code, died.exit, died.output) == (True, "worker-lost", "exit code 4", ("gone",))
    assert died.pid == child.pid


async def test_the_end_of_a_worker_right_after_its_ready_message_is_told_once_too(setting: Setting) -> None:
    started = True
    try:
        child = await setting.start("say(hello, ready); os._exit(3)")
    except WorkerStartError as error:
        started = False
        assert "exit code 3" in str(error)
    else:
        # on its own, and not by being asked to
        async with asyncio.timeout(20):
            while not setting.ends:
                await asyncio.sleep(0.01)
        await child.end()
    (end,) = setting.ends
    # whether it was ready for a moment is for the scheduler to say
    assert (end.ready, end.exit) == (started, "exit code 3")


async def test_ending_twice_and_at_once_is_harmless_and_the_folder_is_gone(setting: Setting) -> None:
    child = await setting.start("say(hello, ready)")
    assert child._launched.folder.is_dir()
    await asyncio.gather(child.end(0), child.end(0), child.close())
    await child.end(0)
    assert not child._launched.folder.exists()


@pytest.fixture(autouse=True)
def own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What other processes of this session make meanwhile is none of these tests' business."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("benchmax-worker-*"))


async def test_a_start_that_is_cancelled_leaves_nothing(setting: Setting) -> None:
    left = folders()
    task = asyncio.ensure_future(setting.start("say(hello)"))
    while not folders() - left:
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [path for path in folders() - left if (path / "work").exists()]
