"""After the first start in a venv, what workers loaded is compiled, beside the rollouts and once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from benchmax.auth import StaticBearerAuth
from runner import Binding, PhaseEvent, RemoteError, isolate
from runner.provision import Cache, Venv
from runner.provision.bytecode import compiled
from runner.provision.cache_entries import entries
from runner.provision.cache_pruning import prune
from runner.provision.cache_verification import verify
from tests.integration.environments import probing
from tests.integration.isolation import bundled, run_one

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def run(cache: Cache, folder: Path, *acts: str) -> Venv:
    auth = {"judge": Binding(StaticBearerAuth("unused-token"), urls=["http://127.0.0.1:9/v1"])}
    async with isolate(bundled(probing, "Probing"), cache=cache, auth=auth) as env:
        dataset = await env.create_dataset("eval", folder)
        for act in acts:
            # nobody answers its request; what counts is what it loads
            with contextlib.suppress(RemoteError):
                await run_one(env, dataset, act)
        held = [entry.in_use for entry in entries(cache) if entry.kind == "venv"]
        assert held == [True]
        assert prune(cache, max_bytes=10**15).kept == ()
        return env.venv


async def test_loaded_modules_are_compiled_once_and_the_venv_stays_whole(shared_cache: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    venv = await run(cache, tmp_path, "ok")
    first = compiled(venv.path)
    names = {Path(source).as_posix().partition("site-packages/")[2] for source in first}
    assert {"benchmax/__init__.py", "cloudpickle/__init__.py", "msgspec/__init__.py"} <= names
    assert not any(name.startswith("openai/") for name in names), "not loaded, so not compiled"
    assert all((venv.path / path).exists() for made in first.values() for path in made)
    assert [found.verdict for found in verify(cache) if found.name == venv.key] == ["whole"]
    assert [entry.in_use for entry in entries(cache) if entry.kind == "venv"] == [False]

    # so is the worker's own code, outside of the venv, and its folders are closed again
    own = sorted((cache.root / "worker").glob("*/**/*.pyc"))
    assert len(own) == len([*(cache.root / "worker").glob("*/**/*.py")])
    assert all(folder.stat().st_mode & 0o222 == 0 for folder in {path.parent for path in own})

    # a bundle that loads more has more compiled, and nothing twice
    times = {path: (venv.path / path).stat().st_mtime_ns for made in first.values() for path in made}
    again = await run(cache, tmp_path, "ok", "sync-client")
    assert again == venv
    second = compiled(venv.path)
    assert first.items() <= second.items()
    assert any("site-packages/openai/" in source for source in second)
    assert times == {path: (venv.path / path).stat().st_mtime_ns for path in times}

    # and then there is nothing left to say
    events: list[object] = []
    async with isolate(bundled(probing, "Probing"), cache=cache, on_event=events.append) as env:
        await run_one(env, await env.create_dataset("eval", tmp_path), "ok")
        assert env._compilation is not None
        assert env._compilation._task is None
    assert "compile" not in {event.phase for event in events if isinstance(event, PhaseEvent)}
