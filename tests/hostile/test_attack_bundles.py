"""A bundle that attacks as soon as it is loaded, run as everybody runs one: each level holds what its plan promises."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from runner import isolate
from runner.provision import Cache
from runner.sandbox.landlock import SCOPE_VERSION
from runner.sandbox.machine import look
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability
from tests.conftest import require
from tests.hostile.environments import attacking
from tests.integration.isolation import bundled, run_one, texts

pytestmark = pytest.mark.integration

SECRET = "hunter2-of-the-caller"


FOUND: dict[str, tuple[str, str, str]] = {
    # off, landlock, namespaces; before a slash where the caller is root; after a bar where a folder above is closed to
    # the worker's user, who has another one in its place
    "read the caller's environment": ("can", "ENOENT/EACCES", "ENOENT"),
    "find the caller's key in its own": ("cannot", "cannot", "cannot"),
    "read a key": ("can", "EACCES|ENOENT", "ENOENT"),
    "plant a file": ("can", "EACCES|ENOENT", "ENOENT"),
    "plant a package": ("can", "EACCES|EROFS", "EROFS"),
    "change the worker": ("can", "EACCES", "EACCES"),
    "list the cache": ("can", "EACCES", "can"),
    "signal the caller": ("can", "EPERM", "ESRCH"),
    "leave shared memory": ("can", "can/EACCES", "can"),
    "use its own folder": ("can", "can", "can"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The caller's home, with a key in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("private key")
    return home


@pytest.fixture
def left() -> Iterator[Path]:
    """Where a bundle leaves something in shared memory, if it can."""
    path = Path("/dev/shm", f"attack-{os.getpid()}")
    yield path
    path.unlink(missing_ok=True)


async def attacked(level: Level, home: Path, cache: Path, unpickled: object = None) -> dict[str, str]:
    """Have a bundle attack, and return what came of it."""
    require(availability(level).available, f"sandbox level {level}")
    bundle = bundled(attacking, "Attacking", caller=os.getpid(), secret=SECRET, home=str(home), unpickled=unpickled)
    async with isolate(bundle, sandbox=level, cache=Cache(cache)) as env:
        dataset = await env.create_dataset("eval", home)
        (said,) = texts(await run_one(env, dataset, "say"))
        found: dict[str, str] = json.loads(str(said))
        return found


@pytest.mark.parametrize("level", get_args(Level))
async def test_what_a_constructor_can_do(
    level: Level, home: Path, left: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", SECRET)
    found = await attacked(level, home, shared_cache)
    column = get_args(Level).index(level)
    expected = {what: cells[column].split("/")[0 if os.geteuid() == 0 else -1] for what, cells in FOUND.items()}
    if level == "landlock" and look().landlock < SCOPE_VERSION and os.geteuid() != 0:
        expected["signal the caller"] = "can"
    assert found.keys() == expected.keys()
    assert {what: came for what, came in found.items() if came not in expected[what].split("|")} == {}
    assert (home / "planted").exists() == left.exists() == (level == "off")


@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.usefixtures("left")
async def test_what_unpickling_can_do(level: Level, home: Path, shared_cache: Path) -> None:
    exploit = attacking.Exploit("/bin/sh", "-c", f"touch {home}/by-unpickling; exit 0")
    await attacked(level, home, shared_cache, exploit)
    assert (home / "by-unpickling").exists() == (level == "off")
