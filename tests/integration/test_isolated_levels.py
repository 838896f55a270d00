"""Isolated environments at each sandbox level: they work, see what they may, and are told apart from a bad bundle."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from runner import SandboxUnavailableError, WorkerEvent, isolate
from runner.provision import Cache
from runner.sandbox import levels, probe, view
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import Level
from tests.conftest import require
from tests.integration.environments import confined
from tests.integration.isolation import bundled, requests_for, until

pytestmark = pytest.mark.integration

Opened = Callable[..., AbstractAsyncContextManager[Callable[[str], Any]]]


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Opened:
    data = tmp_path / "data"
    data.mkdir()
    (data / "acts.txt").write_text("look crash detach")
    (tmp_path / "outside").write_text("as it was")

    @asynccontextmanager
    async def opened(level: Level, events: list[Any]) -> AsyncIterator[Any]:
        require(probe.availability(level).available, f"sandbox level {level}")
        bundle = bundled(confined, "Confined", outside=str(tmp_path / "outside"))
        async with isolate(bundle, sandbox=level, cache=Cache(shared_cache), on_event=events.append) as env:
            assert env.policy.level == level
            dataset = await env.create_dataset("eval", data)

            async def run(act: str) -> Any:
                example = next(example for example in dataset if example.id == act)
                (outcome,) = (await env.run_group(requests_for(example))).values()
                return outcome

            yield run

    return opened


@pytest.mark.parametrize("level", get_args(Level))
async def test_a_bundle_sees_what_its_level_shows(level: Level, opened: Opened, tmp_path: Path) -> None:
    async with opened(level, []) as run:
        found = json.loads((await run("look")).error)
    shut = level != "off"
    assert found["read"] == found["write"] == ("cannot" if shut else "can")
    assert found["data"] == found["home"] == "can"
    assert (tmp_path / "data" / "acts.txt").read_text() == ("look crash detach" if shut else "changed")
    assert (tmp_path / "outside").read_text() == ("as it was" if shut else "changed")
    assert found["python"] == sys.base_prefix
    assert found["library"] == os.__file__
    if shut:
        assert found["venv"] == "cannot"
        assert found["uid"] != 0


@pytest.mark.parametrize("level", get_args(Level))
async def test_a_crash_is_named_the_same_at_every_level(level: Level, opened: Opened) -> None:
    async with opened(level, []) as run:
        outcome = await run("crash")
        after = await run("look")
    assert outcome.termination_reason == "sandbox_error"
    assert "SIGSEGV (-11)" in outcome.error
    assert after.termination_reason == "finished"


@pytest.mark.parametrize("level", get_args(Level))
async def test_what_detached_itself_is_gone_with_its_worker(level: Level, opened: Opened) -> None:
    events: list[Any] = []
    async with opened(level, events) as run:
        assert (await run("detach")).termination_reason == "finished"
        assert any(isinstance(event, WorkerEvent) for event in events)
        await until(lambda: bool(_sleepers()), what="the process that detaches itself")
    assert not _sleepers()


async def test_a_sandbox_that_cannot_be_made_is_not_the_bundles_fault(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(probe.availability("namespaces").available, "bubblewrap and user namespaces")
    monkeypatch.setattr(view, "DEVICES", ("/dev/that-is-not-there",))
    with pytest.raises(SandboxUnavailableError, match=r"sandbox namespaces: it could not be made\..*that-is-not-there"):
        async with opened("namespaces", []):
            pass


async def test_a_worker_whose_user_cannot_read_its_venv_is_told_what(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require(os.geteuid() == 0 and probe.availability("namespaces").available, "root, bubblewrap and user namespaces")
    (tmp_path / "closed").touch(mode=0o600)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "closed"))
    with pytest.raises(SandboxUnavailableError, match=r"cannot reach what the command needs \(.*closed\)"):
        async with opened("namespaces", []):
            pass


def test_a_level_that_this_machine_does_not_have_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(this_machine(), bubblewrap=None)
    monkeypatch.setattr(levels, "this_machine", lambda: machine)
    with pytest.raises(SandboxUnavailableError, match="the program bwrap is not installed"):
        isolate(bundled(confined, "Confined", outside="/"), sandbox="namespaces")


def _sleepers() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line == b"/bin/sleep\x001000.25\x00":
                found.append(entry.name)
    return found
