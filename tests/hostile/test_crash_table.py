"""Every moment of a bundle's life × every way to go wrong there: one typed outcome each, and nothing left behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from runner import (
    Limits,
    RecordEvent,
    RemoteError,
    RolloutRecord,
    RolloutsEndedEvent,
    RunnerError,
    WorkerLostError,
    WorkerStartError,
)
from runner.limits import MIB
from runner.provision import Cache
from tests.contract import loopback
from tests.hostile.environments import crashing
from tests.integration.isolation import alive, bundled, run_one, unconfined, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

AT_ONCE = 6
"""Cells that run at the same time: those that wait for a deadline cost nothing meanwhile."""

MEMORY = 768 * MIB

Error = type[RunnerError]


@dataclass(frozen=True)
class Cell:
    """What comes of one deed in one phase.

    Args:
        ends: The error that is raised, or the termination reason of the rollout that did it.
        texts: What the error's text holds.
        sibling: Termination reason of another rollout of its group; `None` where the group raises.
        bystander: Termination reason of a rollout of another group in the same worker.
        located: Whether it is known where the code was.
    """

    ends: Error | str
    texts: tuple[str, ...] = ()
    sibling: str | None = "finished"
    bystander: str = "finished"
    located: bool = False


def raised(kind: Error, *texts: str, located: bool = False) -> Cell:
    return Cell(kind, texts, sibling=None, located=located)


def died(*texts: str, located: bool = False) -> Cell:
    return Cell("sandbox_error", texts, "sandbox_error", "sandbox_error", located)


def killed(reason: str, *texts: str, sibling: str = "worker_lost", located: bool = True) -> Cell:
    return Cell(reason, ("was killed", *texts), sibling, "worker_lost", located)


FINE = Cell("finished")
"""Leaving something behind is no failure; it only must not stay."""

LEFT_BEHIND = ("thread", "grandchild", "detached grandchild")
MISDEED = "MisdeedError: on purpose"
MEMORY_ERROR = "MemoryError"
OUT = "may be out of memory"
STOPPED = "had been stopped by a signal"
HERE = "in commit"
EXITS = {
    "exit 0": ("exit code 0",),
    "exit 3": ("exit code 3",),
    "segfault": ("SIGSEGV (-11)", HERE, "A compiled package can do that"),
    "SIGKILL": ("SIGKILL (-9)", OUT),
}
LATE_START = "was not ready after 6 s (loading the bundle and constructing the environment)"


def starting(what: str) -> dict[str, Cell]:
    doing = "while loading the bundle and constructing the environment"
    return {
        "raise": raised(RemoteError, f"{what} raised", MISDEED),
        "sys.exit": raised(RemoteError, f"{what} raised", "SystemExit: 5"),
        **{deed: raised(WorkerStartError, doing, *texts, located=deed == "segfault") for deed, texts in EXITS.items()},
        "SIGSTOP": raised(WorkerStartError, LATE_START),
        "out of memory": raised(RemoteError, f"{what} raised", MEMORY_ERROR),
        "hold the lock": raised(WorkerStartError, LATE_START, HERE, located=True),
        "wait for ever": raised(WorkerStartError, LATE_START, HERE, located=True),
    }


def in_rollout(fails: dict[str, Cell], hangs: Cell) -> dict[str, Cell]:
    doing = "rollouts in flight"
    return {
        "sys.exit": died("exit code 5"),
        **{deed: died(doing, *texts, located=deed == "segfault") for deed, texts in EXITS.items()},
        "SIGSTOP": killed("rollout_timeout", "did not end within", STOPPED, located=False),
        "hold the lock": killed("rollout_timeout", "did not end within", HERE),
        "wait for ever": hangs,
        **fails,
    }


SOFT = Cell("rollout_timeout", ("did not end within",), located=True)
CLOSING = "closing the environment"

TABLE: dict[str, dict[str, Cell]] = {
    "import": starting("loading the bundle"),
    "construct": starting("constructing the environment"),
    "dataset": {
        "raise": raised(RemoteError, "create_dataset('eval') raised", MISDEED),
        "sys.exit": raised(RemoteError, "create_dataset('eval') raised SystemExit: 5"),
        **{
            deed: raised(WorkerLostError, "create_dataset('eval')", *texts, located=deed == "segfault")
            for deed, texts in EXITS.items()
        },
        "SIGSTOP": raised(WorkerLostError, "did not end within 1 s"),
        "out of memory": raised(RemoteError, "create_dataset('eval') raised MemoryError"),
        "hold the lock": raised(WorkerLostError, "did not end within 1 s"),
        "wait for ever": raised(WorkerLostError, "did not end within 1 s", "Crashing.now", located=True),
    },
    "rollout": in_rollout(
        {
            "raise": raised(RemoteError, MISDEED),
            "out of memory": raised(RemoteError, MEMORY_ERROR),
            "over the limit": raised(RemoteError, MEMORY_ERROR),
            "unchecked malloc": died("SIGSEGV (-11)", "may be out of memory: its limit is 768 MiB", located=True),
        },
        SOFT,
    ),
    "tool": in_rollout({"raise": Cell("tool_error"), "out of memory": Cell("tool_error")}, SOFT),
    "reward": in_rollout(
        {"raise": Cell("reward_error", (MISDEED,)), "out of memory": Cell("reward_error", (MEMORY_ERROR,))}, SOFT
    ),
    "log call": in_rollout(
        # a log call that fails is logged as that, as logging itself has it
        {"raise": FINE, "out of memory": FINE},
        killed("rollout_timeout", "did not end within", HERE),
    ),
    "group reward": {
        "raise": Cell("group_reward_error", (MISDEED,), "group_reward_error"),
        "sys.exit": raised(RemoteError, "SystemExit: 5"),
        **{deed: died("rollouts in flight", *texts, located=deed == "segfault") for deed, texts in EXITS.items()},
        "SIGSTOP": killed("group_timeout", "Group scoring", STOPPED, sibling="group_timeout", located=False),
        "out of memory": Cell("group_reward_error", (MEMORY_ERROR,), "group_reward_error"),
        "hold the lock": killed("group_timeout", "Group scoring", HERE, sibling="group_timeout"),
        "wait for ever": Cell("group_timeout", ("Group scoring",), "group_timeout", located=True),
    },
    "shutdown": {
        "raise": raised(RemoteError, "aclose raised", MISDEED),
        "sys.exit": raised(RemoteError, "aclose raised SystemExit: 5"),
        **{deed: raised(WorkerLostError, CLOSING, *texts, located=deed == "segfault") for deed, texts in EXITS.items()},
        "SIGSTOP": raised(WorkerLostError, CLOSING, "did not end within 1 s", STOPPED),
        "out of memory": raised(RemoteError, "aclose raised MemoryError"),
        "hold the lock": raised(WorkerLostError, CLOSING, "did not end within 1 s", HERE, located=True),
        "wait for ever": raised(WorkerLostError, CLOSING, "did not end within 1 s", "Crashing.now", located=True),
    },
}
HANGS = ("SIGSTOP", "hold the lock", "wait for ever")


def limits(phase: str, deed: str) -> Limits:
    if deed not in HANGS:
        return Limits(memory_bytes=MEMORY if deed in ("unchecked malloc", "over the limit") else None)
    kept = Limits(cancel_grace_s=0.3)
    match phase:
        case "import" | "construct":
            return replace(kept, startup_s=6)
        case "dataset":
            return replace(kept, dataset_s=1)
        case "tool" | "reward":
            # what talks to a model takes longer on a busy machine
            return replace(kept, rollout_s=4)
        case "group reward":
            return replace(kept, scoring_s=1)
        case "shutdown":
            return replace(kept, shutdown_s=1)
        case _:
            return replace(kept, rollout_s=2)


@dataclass
class Told:
    """What the environment told while it ran."""

    folder: Path
    records: dict[str, RolloutRecord] = field(default_factory=dict)

    def __call__(self, event: object) -> None:
        match event:
            case RecordEvent(record=record):
                self.records[record.rollout_id] = record
            case RolloutsEndedEvent(rollout_ids=ids) if "deed-1" in ids:
                (self.folder / "sibling").touch()


@dataclass
class Fate:
    """What came of it."""

    ends: Error | str
    text: str = ""
    sibling: str | None = None
    bystander: str = "finished"
    stack: str = ""


async def play(phase: str, deed: str, folder: Path, cache: Path, url: str) -> Fate:
    """Let one environment do one deed, and everything around it."""
    fuse = crashing.Fuse(deed, str(folder)) if phase == "import" else None
    bundle = bundled(crashing, "Crashing", phase=phase, deed=deed, folder=str(folder), fuse=fuse)
    told = Told(folder)
    fate = Fate("finished")
    try:
        async with unconfined(bundle, cache=Cache(cache), limits=limits(phase, deed), on_event=told) as env:
            dataset = await env.create_dataset("eval", folder)
            if phase in ("import", "construct", "dataset", "shutdown"):
                await run_one(env, dataset, "fine")
            else:
                fate = await at_work(env, dataset, told, url)
                # by the same worker, or by the one that replaces it
                (fine,) = (await run_one(env, dataset, "fine")).values()
                assert fine.termination_reason == "finished"
    except RunnerError as error:
        fate = Fate(type(error), str(error), stack=error.detail)
    pids = [int(path.name.removeprefix("left-")) for path in folder.glob("left-*")]
    assert len(pids) == (deed in LEFT_BEHIND[1:])
    assert not any(alive(pid) for pid in pids)
    return fate


async def at_work(env: Any, dataset: Any, told: Told, url: str) -> Fate:
    deed = asyncio.ensure_future(run_one(env, dataset, "deed", count=2, base_url=url))
    bystander = asyncio.ensure_future(run_one(env, dataset, "bystander", base_url=url))
    await until((told.folder / "bystanding").exists, what="the bystander")
    await until((told.folder / "sibling").exists, what="the end of the sibling")
    (told.folder / "ready").touch()
    fate = Fate("finished")
    try:
        outcomes = await deed
    except RunnerError as error:
        fate = Fate(type(error), str(error), stack=error.detail)
    else:
        culprit = outcomes["deed-0"]
        fate = Fate(
            culprit.termination_reason,
            culprit.error or "",
            outcomes["deed-1"].termination_reason,
            stack=told.records["deed-0"].stack,
        )
        assert [line.text for line in told.records["deed-0"].logs if line.stream == "stdout"] == ["last words"]
    (told.folder / "go").touch()
    (other,) = (await bystander).values()
    fate.bystander = other.termination_reason
    return fate


def tool_call(received: loopback.Received) -> loopback.Reply:
    """The first answer of a conversation calls the tool, the second one ends it."""
    if received.body["messages"][-1]["role"] == "user":
        return loopback.completion(None, finish="tool_calls", calls=[loopback.call("tool", "{}")])
    return loopback.completion("done")


@pytest.mark.parametrize("phase", TABLE)
async def test_whatever_goes_wrong_has_one_typed_outcome(phase: str, shared_cache: Path, tmp_path: Path) -> None:
    cells = {**TABLE[phase], **dict.fromkeys(LEFT_BEHIND, FINE)}
    room = asyncio.Semaphore(AT_ONCE)

    async def one(deed: str) -> Fate:
        folder = tmp_path / deed.replace(" ", "-")
        folder.mkdir()
        async with room:
            return await play(phase, deed, folder, shared_cache, server.url)

    with loopback.running_server() as server:
        server.answer = tool_call
        fates = dict(zip(cells, await asyncio.gather(*map(one, cells)), strict=True))
    wrong = [problem for deed, cell in cells.items() for problem in problems(deed, cell, fates[deed])]
    assert not wrong, "\n".join(wrong)


def problems(deed: str, cell: Cell, fate: Fate) -> list[str]:
    """What is not as the table says, all of it at once."""
    checks = {
        f"ends in {cell.ends}": fate.ends == cell.ends,
        **{f"says {text!r}": text in fate.text for text in cell.texts},
        f"leaves its sibling {cell.sibling}": fate.sibling in (cell.sibling, None),
        f"leaves the bystander {cell.bystander}": fate.bystander == cell.bystander,
        "is located": bool(fate.stack) or not cell.located,
    }
    return [f"{deed}: expected that it {what}, got {fate}" for what, holds in checks.items() if not holds]
