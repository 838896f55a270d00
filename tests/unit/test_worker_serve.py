"""A real worker, with the test as its caller: the handshake and each call's one answer, at awkward moments too."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.bundle import Bundle, dump_bundle
from runner.channel import Channel
from runner.environ import worker_environment
from runner.process import Exit, OutputTail, Process
from runner.protocol import (
    AUTH_FD,
    BUNDLE_FD,
    DUMP_FD,
    PROTOCOL,
    TRIAL_FD,
    WORK_FD,
    AuthFromWorker,
    CallDone,
    CallFailed,
    Cancel,
    Close,
    Closed,
    CreateDataset,
    DatasetPart,
    Expire,
    FromWorker,
    GroupDone,
    HeaderRequest,
    HeadersRefused,
    Hello,
    Load,
    Log,
    Outcome,
    Ready,
    RemoteFailure,
    RolloutsEnded,
    RolloutSpec,
    RunGroup,
    RunRollout,
    StartFailed,
    ToWorker,
    auth_from_worker_decoder,
    encode,
    from_worker_decoder,
)
from runner.sandbox.policy import SandboxPolicy
from runner.shipment import ship

SOURCE = """
import asyncio, logging, os, threading, time
from dataclasses import dataclass
from benchmax.auth import InjectedAuth, ModelRequestContext
from benchmax.envs import *
from benchmax.envs.logging import rollout_context

class Text(str):
    pass

TEXT = "x" * 500_000

@dataclass(frozen=True, kw_only=True)
class Told(RolloutAttempt):
    messages: list

class Env(Environment[None, RolloutAttempt]):
    kind = "plain"

    def __init__(self, kind="plain"):
        self.kind = kind
        self.scorable_termination_reasons = frozenset({Text("finished")})

    def validation_diagnostics(self):
        if self.kind == "odd-diagnostics":
            return [ValidationDiagnostic("info", "c", "m")]
        return []

    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([Example(Text("e1"), None), Example("e2", None)])

    async def run_rollout(self, request):
        kind = self.kind
        if kind == "blocks":
            os.write(2, b"blocking")
            time.sleep(3600)
        if kind in ("waits", "queues"):
            await asyncio.Event().wait()
        if kind == "wrong-id":
            return RolloutAttempt(rollout_id="another", termination_reason="finished", rewards={})
        if kind == "broken-text":
            class Broken(Exception):
                def __str__(self):
                    raise SystemExit(3)
            raise Broken()
        if kind == "own-context":
            with rollout_context("my own"):
                logging.getLogger("env").warning("inside")
        if kind == "outlives":
            def later():
                time.sleep(0.1)
                logging.getLogger("env").warning("outlived")
            context = __import__("contextvars").copy_context()
            threading.Thread(target=context.run, args=(later,)).start()
        if kind == "asks":
            context = ModelRequestContext("https://judge.example", "m", "label")
            await InjectedAuth("judge").headers_for_request(context)
        if kind == "tells":
            attempt = Told(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0},
                           messages=[{"role": "user", "content": TEXT}])
            self.ran = getattr(self, "ran", 0) + 1
            if self.ran == 100:
                os.write(2, b"all have run")
            return attempt
        if kind == "short":
            return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
        return RolloutAttempt(rollout_id=Text(request.rollout_id), termination_reason=Text("finished"),
                              rewards={"x": 1.0})

class Scores(Env):
    async def compute_group_rewards(self, rollouts):
        os.write(2, b"scoring")
        await asyncio.sleep(1)

class Queues(Env):
    async def run_group(self, requests):
        # one at a time, although every one has been sent
        outcomes = {}
        for request in requests:
            try:
                await self.run_rollout(request)
            except RolloutFailure as failure:
                outcomes[request.rollout_id] = RolloutOutcome({}, failure.termination_reason, str(failure))
        return outcomes
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bundle]:
    path = tmp_path_factory.mktemp("source") / "served_env.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("served_env", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["served_env"] = module
    spec.loader.exec_module(module)

    def bundled(kind: str = "plain") -> Bundle:
        env_class = {"scores": module.Scores, "queues": module.Queues}.get(kind, module.Env)
        return dump_bundle(env_class, constructor_args={"kind": kind}, local_modules=[module])

    return bundled


ANSWERS = (CallDone, CallFailed, GroupDone)


class Caller:
    """The caller's ends of a worker's channels."""

    def __init__(self) -> None:
        self.heard: list[FromWorker] = []
        self.asked: list[AuthFromWorker] = []
        self.over = False
        self.news = asyncio.Event()
        self.work: Channel[FromWorker]
        self.auth: Channel[AuthFromWorker]
        self.work_socket: socket.socket
        self.process: Process
        self.output = OutputTail(100_000)

    def take(self, message: FromWorker) -> None:
        self.heard.append(message)
        self.news.set()

    def ask(self, request: AuthFromWorker) -> None:
        self.asked.append(request)
        self.news.set()

    def end(self, error: Exception | None) -> None:
        assert error is None
        self.over = True
        self.news.set()

    def say(self, *messages: ToWorker) -> None:
        """Send messages so that the worker reads all of them at once."""
        for message in messages:
            self.work.send(message)
        self.work.flush()

    async def hear(self, *kinds: type[Any]) -> Any:
        """Wait for the next message of one of these kinds; forget what came before it."""
        while True:
            for index, message in enumerate(self.heard):
                if isinstance(message, kinds):
                    del self.heard[: index + 1]
                    return message
            assert not self.over, f"the worker ended: {self.output.text()}"
            self.news.clear()
            await self.news.wait()

    async def hear_all(self, *last: type[Any]) -> list[FromWorker]:
        """Wait for a message of one of these kinds, and return all that came up to it."""
        while not any(isinstance(message, last) for message in self.heard):
            assert not self.over, f"the worker ended: {self.output.text()}"
            self.news.clear()
            await self.news.wait()
        everything, self.heard = self.heard, []
        return everything


@asynccontextmanager
async def worker(tmp_path: Path, bundle: Bundle, **load: Any) -> AsyncIterator[Caller]:
    caller = Caller()
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    work, work_theirs = socket.socketpair()
    auth, auth_theirs = socket.socketpair()
    trials, trials_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pickled = os.memfd_create("bundle")
    os.write(pickled, bundle.pickled)
    dump = os.memfd_create("dump")
    try:
        caller.process = await Process.start(
            [sys.executable, "-s", "-P", "-X", "utf8", str(ship(tmp_path / "cache")), sys.base_prefix],
            env=worker_environment(tmp_path, Path(sys.executable)),
            cwd=tmp_path,
            policy=SandboxPolicy(),
            descriptors={
                WORK_FD: work_theirs.fileno(),
                AUTH_FD: auth_theirs.fileno(),
                BUNDLE_FD: pickled,
                DUMP_FD: dump,
                TRIAL_FD: trials_theirs.fileno(),
            },
            stdout=caller.output.write,
            stderr=caller.output.write,
        )
    finally:
        work_theirs.close()
        auth_theirs.close()
        trials_theirs.close()
        trials.close()
        os.close(pickled)
        os.close(dump)
    caller.work_socket = work
    caller.work = await Channel.open(work, from_worker_decoder(), caller.take, caller.end)
    caller.auth = await Channel.open(auth, auth_from_worker_decoder(), caller.ask, lambda _: None)
    fields: dict[str, Any] = {
        "protocol": PROTOCOL,
        "metadata": bundle.metadata.to_json_bytes(),
        "bindings": [],
        "rollout_log_bytes": 10_000,
        "transcript_bytes": 10_000,
        "dataset_examples": 30_000,
        "dataset_bytes": 1_000_000,
        "stall_s": 3600.0,
    }
    caller.say(Load(**{**fields, **load}))
    try:
        yield caller
    finally:
        await caller.process.end(0)
        caller.work.close()
        caller.auth.close()


@asynccontextmanager
async def ready(tmp_path: Path, bundle: Bundle, **load: Any) -> AsyncIterator[Caller]:
    """A worker with one dataset, which is call 1."""
    async with worker(tmp_path, bundle, **load) as caller:
        await caller.hear(Ready)
        caller.say(CreateDataset(call=1, split="eval", base_dir="/", max_examples=None, bindings=[]))
        assert await caller.hear(DatasetPart) == DatasetPart(call=1, ids=["e1", "e2"])
        assert await caller.hear(CallDone) == CallDone(call=1)
        yield caller


def group(call: int, *rollouts: str, bindings: tuple[str, ...] = ()) -> RunGroup:
    specs = [RolloutSpec(rollout_id=name, dataset=1, position=0, model="m", base_url="http://m") for name in rollouts]
    return RunGroup(call=call, split="eval", rollouts=specs, bindings=list(bindings))


# -- start ----------------------------------------------------------------------------------------------------


async def test_the_handshake(tmp_path: Path, environments: Callable[..., Bundle]) -> None:
    async with worker(tmp_path, environments()) as caller:
        hello, is_ready = await caller.hear_all(Ready)
        assert isinstance(hello, Hello)
        assert hello.protocol == PROTOCOL
        assert hello.python == f"{sys.version_info.major}.{sys.version_info.minor}"
        assert is_ready == Ready(
            environment="Env",
            scorable_termination_reasons=["finished"],
            requires_public_model_endpoint=False,
            diagnostics=[],
        )
        caller.say(Close())
        assert await caller.hear(Closed) == Closed()
        assert await caller.process.wait() == Exit(code=0)


@pytest.mark.parametrize(("kind", "scores"), [("plain", False), ("scores", True), ("queues", True)])
async def test_a_worker_says_whether_siblings_are_scored_together(
    tmp_path: Path, environments: Callable[..., Bundle], kind: str, scores: bool
) -> None:
    async with worker(tmp_path, environments(kind=kind)) as caller:
        assert (await caller.hear(Ready)).scores_groups is scores


async def test_another_protocol_number_is_refused_by_the_worker_too(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with worker(tmp_path, environments(), protocol=PROTOCOL + 1) as caller:
        failed = await caller.hear(StartFailed)
        assert failed.phase == "protocol"
        assert f"protocol {PROTOCOL + 1}, this worker {PROTOCOL}" in failed.failure.message
        assert await caller.process.wait() == Exit(code=0)


async def test_a_description_that_fits_no_message_is_a_failed_start_and_not_a_lie(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with worker(tmp_path, environments(kind="odd-diagnostics")) as caller:
        failed = await caller.hear(StartFailed, Ready)
        assert isinstance(failed, StartFailed)
        assert failed.phase == "describe"
        assert "diagnostics[0].severity" in failed.failure.message


async def test_constructor_arguments_the_class_does_not_take_are_a_failed_construction(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    broken = Bundle(b"\x80\x04N.", environments().metadata)
    async with worker(tmp_path, broken) as caller:
        failed = await caller.hear(StartFailed)
        assert failed.phase == "load"


# -- the caller goes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"\0\0\0\0", b"\xff\xff\xff\xff", encode(Closed())], ids=["zero", "huge", "direction"]
)
async def test_a_worker_that_cannot_understand_its_caller_ends(
    tmp_path: Path, environments: Callable[..., Bundle], data: bytes
) -> None:
    async with ready(tmp_path, environments()) as caller:
        os.write(caller.work_socket.fileno(), data)
        assert await caller.process.wait() == Exit(code=70)


@pytest.mark.parametrize("channel", ["work", "auth"])
async def test_a_worker_whose_caller_closed_a_channel_ends(
    tmp_path: Path, environments: Callable[..., Bundle], channel: str
) -> None:
    async with ready(tmp_path, environments()) as caller:
        getattr(caller, channel).close()
        assert await caller.process.wait() == Exit(code=70)


async def test_a_worker_that_is_blocked_ends_with_its_caller_too(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="blocks")) as caller:
        caller.say(group(2, "a"))
        while "blocking" not in caller.output.text():
            await asyncio.sleep(0.01)
        caller.auth.close()
        assert await caller.process.wait() == Exit(code=70)


# -- each call has one answer ---------------------------------------------------------------------------------


async def test_a_group_with_more_to_tell_is_told_rollout_by_rollout_and_answered_last(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments()) as caller:
        caller.say(group(2, "a", "b"))
        told = [message for message in await caller.hear_all(CallDone) if not isinstance(message, Log)]
        assert [type(message) for message in told] == [RolloutsEnded, Outcome, Outcome, CallDone]
        assert told[1] == Outcome(call=2, rollout_id="a", termination_reason="finished", rewards=b'{"x":1.0}')


async def test_a_group_with_nothing_more_to_tell_is_answered_by_one_message(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="short")) as caller:
        caller.say(group(2, "a", "b"))
        (told,) = await caller.hear_all(GroupDone)
        assert isinstance(told, GroupDone)
        assert [(plain.termination_reason, plain.rewards) for plain in told.outcomes] == [("finished", {"x": 1.0})] * 2
        assert all(plain.seconds is not None and plain.seconds >= 0 for plain in told.outcomes)


async def test_a_call_that_is_cancelled_in_the_same_breath_is_answered(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="waits")) as caller:
        caller.say(group(2, "a"), Cancel(call=2))
        failed = await caller.hear(CallFailed)
        assert failed.call == 2
        assert failed.failure.type == "asyncio.exceptions.CancelledError"


async def test_a_call_whose_deadline_comes_in_the_same_breath_is_answered(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="waits")) as caller:
        caller.say(group(2, "a"), Expire(call=2, reason="rollout_timeout", message="late"))
        assert (await caller.hear(*ANSWERS)).call == 2


async def test_a_cancelled_call_leaves_the_others_alone(tmp_path: Path, environments: Callable[..., Bundle]) -> None:
    async with ready(tmp_path, environments()) as caller:
        caller.say(group(2, "a"), group(3, "a"), Cancel(call=2), Cancel(call=99))
        answers = {(await caller.hear(*ANSWERS)).call for _ in range(2)}
        assert answers == {2, 3}


async def test_an_expired_rollout_that_still_waits_for_its_turn_fails_when_it_comes(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="queues")) as caller:
        caller.say(group(2, "a", "b", "c"))
        # answered in order: once this one is, the rollouts above are under way
        caller.say(CreateDataset(call=3, split="eval", base_dir="/", max_examples=None, bindings=[]))
        await caller.hear(CallDone)
        caller.say(Expire(call=2, reason="rollout_timeout", message="late"))
        told = await caller.hear_all(CallDone)
        outcomes = [message for message in told if isinstance(message, Outcome)]
        assert [(o.rollout_id, o.termination_reason, o.error, o.origin, o.rewards) for o in outcomes] == [
            (name, "rollout_timeout", "late", "runner", b"{}") for name in ("a", "b", "c")
        ]


async def test_a_rollout_deadline_that_crosses_with_the_end_of_the_last_rollout_does_not_hit_the_scoring(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="scores")) as caller:
        caller.say(group(2, "a", "b"))
        while "scoring" not in caller.output.text():
            await asyncio.sleep(0.01)
        caller.say(Expire(call=2, reason="rollout_timeout", message="late"))
        told = [message for message in await caller.hear_all(CallDone) if isinstance(message, Outcome)]
        assert [outcome.termination_reason for outcome in told] == ["finished", "finished"]


async def test_a_scoring_deadline_ends_the_scoring(tmp_path: Path, environments: Callable[..., Bundle]) -> None:
    async with ready(tmp_path, environments(kind="scores")) as caller:
        caller.say(group(2, "a", "b"))
        while "scoring" not in caller.output.text():
            await asyncio.sleep(0.01)
        caller.say(Expire(call=2, reason="group_timeout", message="late"))
        failed = await caller.hear(CallFailed, CallDone)
        assert (failed.failure.type, failed.failure.message) == ("TimeoutError", "late")


async def test_an_attempt_with_another_rollouts_id_is_the_environments_failure(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="wrong-id")) as caller:
        caller.say(RunRollout(call=2, split="eval", rollout=group(2, "a").rollouts[0], bindings=[]))
        failed = await caller.hear(CallFailed, CallDone)
        assert "wrong rollout ID 'another'" in failed.failure.message


async def test_an_exception_whose_text_exits_is_answered_like_any_other(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="broken-text")) as caller:
        caller.say(RunRollout(call=2, split="eval", rollout=group(2, "a").rollouts[0], bindings=[]))
        failed = await caller.hear(CallFailed, CallDone)
        assert failed.failure.message == "<text not available: its __str__ raised SystemExit>"


async def test_two_closes_are_answered_by_one_end(tmp_path: Path, environments: Callable[..., Bundle]) -> None:
    async with ready(tmp_path, environments(kind="waits")) as caller:
        caller.say(group(2, "a"), Close(), Close())
        assert await caller.hear(Closed) == Closed()
        assert await caller.process.wait() == Exit(code=0)


async def test_a_caller_that_does_not_read_holds_the_rollouts_back(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    names = [f"r{number}" for number in range(100)]
    async with ready(tmp_path, environments(kind="tells"), transcript_bytes=1_000_000) as caller:
        status = Path(f"/proc/{caller.process.pid}/statm")
        transport = caller.work._transport
        assert transport is not None
        transport.pause_reading()
        before = int(status.read_text().split()[1])
        caller.say(*(group(10 + number, name) for number, name in enumerate(names)))
        while "all have run" not in caller.output.text():
            await asyncio.sleep(0.01)
        # a hundred transcripts of half a megabyte each, of which few may wait in the worker
        assert (int(status.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE") < 15_000_000
        transport.resume_reading()
        answered = {(await caller.hear(*ANSWERS)).call for _ in names}
        assert answered == set(range(10, 110))


# -- output and headers ---------------------------------------------------------------------------------------


async def test_a_rollout_that_the_bundle_names_itself_is_never_told_to_the_caller(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="own-context")) as caller:
        caller.say(group(2, "a"))
        (line,) = [m for m in await caller.hear_all(*ANSWERS) if isinstance(m, Log) and m.text == "inside"]
        assert (line.call, line.rollouts) == (2, [])


async def test_what_a_thread_logs_after_its_call_belongs_to_no_call(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="outlives")) as caller:
        caller.say(group(2, "a"))
        await caller.hear(*ANSWERS)
        line = await caller.hear(Log)
        assert (line.text, line.call, line.rollouts) == ("outlived", None, [])


async def test_a_header_request_names_its_call_binding_and_rollout_and_a_refusal_raises_in_the_bundle(
    tmp_path: Path, environments: Callable[..., Bundle]
) -> None:
    async with ready(tmp_path, environments(kind="asks")) as caller:
        rollout = group(2, "a").rollouts[0]
        caller.say(RunRollout(call=2, split="eval", rollout=rollout, bindings=["judge"]))
        while not caller.asked:
            caller.news.clear()
            await caller.news.wait()
        (asked,) = caller.asked
        assert isinstance(asked, HeaderRequest)
        assert (asked.call, asked.binding, asked.rollout, asked.rollout_id) == (2, "judge", "a", "label")
        # an answer to nothing does no harm
        refusal = RemoteFailure(type="HeadersRefusedError", message="not covered")
        caller.auth.send(HeadersRefused(request=999, failure=refusal))
        caller.auth.send(HeadersRefused(request=asked.request, failure=refusal))
        failed = await caller.hear(CallFailed, CallDone)
        assert failed.failure.message == "not covered"
