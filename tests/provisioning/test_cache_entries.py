"""What the cache holds, what of it may go, and what never goes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from runner.provision import Cache, Venv, provision_packages
from runner.provision.cache import lease_file
from runner.provision.cache_entries import Entry, entries
from runner.provision.cache_pruning import prune
from runner.provision.options import ProvisionOptions
from tests.integration.local_index import LocalIndex

pytestmark = pytest.mark.integration

HOUR = 3600.0

USER = """
import asyncio, sys
from runner.provision import Cache, provision_packages
from runner.provision.options import ProvisionOptions

venv = asyncio.run(provision_packages(
    [sys.argv[3]], cache=Cache(sys.argv[1]), options=ProvisionOptions(index_url=sys.argv[2])
))
print(venv.path, flush=True)
sys.stdin.read()
"""


async def ask(index: LocalIndex, cache: Cache, requirement: str, *, hours_ago: float = 0.0) -> Venv:
    """Get a venv, and if asked to, leave it as if it had not been used since."""
    venv = await provision_packages([requirement], cache=cache, options=ProvisionOptions(index_url=index.url))
    if hours_ago:
        leave(venv)
        now = lease_file(venv.path).stat().st_mtime
        os.utime(lease_file(venv.path), (now - hours_ago * HOUR, now - hours_ago * HOUR))
    return venv


def leave(venv: Venv) -> None:
    assert venv.lease is not None
    venv.lease.release()


def venvs(cache: Cache) -> list[Entry]:
    return [entry for entry in entries(cache) if entry.kind == "venv"]


async def test_cache_that_does_not_exist_holds_nothing_and_is_not_made(cache: Cache) -> None:
    assert entries(cache) == []
    assert not cache.root.exists()


async def test_entries_say_what_they_are_and_the_last_used_comes_first(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0", files={"pack_data.txt": "x" * 100_000})
    old = await ask(index, cache, "pack", hours_ago=5)
    new = await ask(index, cache, "pack<2", hours_ago=1)
    first, second = venvs(cache)
    assert (first.name, second.name) == (new.key, old.key)
    assert second.requirements == ("pack",)
    assert (second.packages, second.python_version) == (1, old.python_version)
    assert second.size_bytes > 100_000
    assert first.last_used - second.last_used == pytest.approx(4 * HOUR, abs=600)
    assert not first.in_use
    assert first.whole
    assert {entry.name for entry in entries(cache) if entry.kind == "downloads"} & {"uv-wheels", "pip-wheels"}


async def test_venv_that_is_found_again_is_used_now(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    await ask(index, cache, "pack", hours_ago=5)
    (before,) = venvs(cache)
    venv = await ask(index, cache, "pack")
    (after,) = venvs(cache)
    assert after.last_used - before.last_used > 4 * HOUR
    assert after.in_use
    leave(venv)
    assert not venvs(cache)[0].in_use


async def test_old_entries_go_and_used_ones_never(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    old = await ask(index, cache, "pack", hours_ago=50)
    held = await ask(index, cache, "pack<2", hours_ago=50)
    fresh = await ask(index, cache, "pack<3", hours_ago=1)
    again = await ask(index, cache, "pack<2")
    os.utime(lease_file(held.path), (1000, 1000))
    done = prune(cache, older_than_s=24 * HOUR)
    assert [entry.name for entry in done.removed if entry.kind == "venv"] == [old.key]
    assert [entry.name for entry in done.kept] == [held.key]
    assert done.freed_bytes > 0
    assert not old.path.exists()
    assert held.path.exists()
    assert fresh.path.exists()
    leave(again)


async def test_least_recently_used_go_until_the_rest_fits(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0", files={"pack_data.txt": "x" * 300_000})
    made = [await ask(index, cache, f"pack<{10 - hours}", hours_ago=hours) for hours in (3, 2, 1)]
    total = sum(entry.size_bytes for entry in entries(cache))
    done = prune(cache, max_bytes=total - 1)
    assert [entry.name for entry in done.removed] == [made[0].key]
    assert done.left_bytes == sum(entry.size_bytes for entry in entries(cache))
    done = prune(cache, max_bytes=0)
    assert {entry.name for entry in done.removed} >= {made[1].key, made[2].key}
    assert entries(cache) == []
    venv = await ask(index, cache, "pack<9")
    assert venv.packages == {"pack": "1.0"}


async def test_venv_used_by_another_process_stays_until_that_process_is_gone(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    user = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", USER, str(cache.root), index.url, "pack"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert user.stdout is not None
    path = Path((await user.stdout.readline()).decode().strip())
    done = prune(cache, max_bytes=0)
    assert [entry.path for entry in done.kept] == [path.parent]
    assert path.exists()
    user.send_signal(signal.SIGKILL)
    await user.communicate()
    assert prune(cache, max_bytes=0).kept == ()
    assert not path.exists()


async def test_nothing_that_an_installation_needs_goes_while_it_runs(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    await ask(index, cache, "pack<3", hours_ago=1)
    index.add("other", "1.0")
    index.stall = "/other/other-1.0"
    building = asyncio.create_task(ask(index, cache, "other"))
    assert await asyncio.to_thread(index.stalled.wait, 50)
    done = await asyncio.to_thread(prune, cache, max_bytes=0)
    assert {entry.kind for entry in done.removed} == {"venv"}
    assert len([entry for entry in done.kept if entry.kind == "venv"]) == 1
    assert [entry for entry in done.kept if entry.kind == "downloads"]
    index.stall = None
    index.resume.set()
    venv = await building
    assert venv.packages == {"other": "1.0"}


async def test_installation_waits_for_the_cleaning_of_the_installers_folders(index: LocalIndex, cache: Cache) -> None:
    from runner.provision.lease import Lease

    index.add("pack", "1.0")
    cache.prepare()
    cleaning = Lease.exclusive(cache.installers_file, create=True)
    assert cleaning is not None
    waiting = asyncio.Event()
    building = asyncio.create_task(
        provision_packages(
            ["pack"],
            cache=cache,
            options=ProvisionOptions(index_url=index.url),
            on_event=lambda event: waiting.set() if "waiting" in event.message else None,
        )
    )
    await asyncio.wait_for(waiting.wait(), 50)
    assert not index.requests
    cleaning.release()
    assert (await building).packages == {"pack": "1.0"}


async def test_what_is_broken_goes_without_being_asked_for(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    whole = await ask(index, cache, "pack", hours_ago=1)
    broken = await ask(index, cache, "pack<2", hours_ago=1)
    (broken.path.parent / "manifest.json").unlink()
    assert {entry.whole for entry in venvs(cache)} == {True, False}
    done = prune(cache)
    assert [entry.name for entry in done.removed] == [broken.key]
    assert [entry.name for entry in venvs(cache)] == [whole.key]


async def test_rebuilding_leaves_a_venv_alone_in_which_something_still_runs(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    used = await ask(index, cache, "pack")
    (used.path.parent / "manifest.json").unlink()
    other = await ask(index, cache, "pack")
    assert other.path != used.path
    assert used.python.exists()
    leave(used)
    leave(other)
    (other.path.parent / "manifest.json").unlink()
    await ask(index, cache, "pack")
    assert not used.path.exists()
    assert not other.path.exists()


async def test_hundred_askers_and_a_pruner_agree(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    await ask(index, cache, "pack", hours_ago=1)

    async def use() -> None:
        venv = await ask(index, cache, "pack")
        assert venv.python.exists()
        assert (venv.path / "pyvenv.cfg").exists()
        leave(venv)

    pruning = asyncio.to_thread(lambda: [prune(cache, max_bytes=0) for _ in range(5)])
    await asyncio.gather(pruning, *(use() for _ in range(100)))
