"""A venv in the cache is whole, built once, and made again when it is not."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from runner.errors import CacheError
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, Venv, provision_packages
from tests.integration.local_index import LocalIndex

pytestmark = pytest.mark.integration

BUILDER = """
import asyncio, json, sys
from runner.provision import ProvisionOptions, Cache, provision_packages

events = []
venv = asyncio.run(provision_packages(
    [sys.argv[3]], cache=Cache(sys.argv[1]), options=ProvisionOptions(index_url=sys.argv[2]), on_event=events.append
))
installed = [event.message for event in events if event.message.startswith("installing")]
print(json.dumps({"path": str(venv.path), "builds": len(installed)}))
"""


async def start_builder(cache: Cache, index: LocalIndex, requirement: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BUILDER, str(cache.root), index.url, requirement), stdout=asyncio.subprocess.PIPE
    )


async def ask(index: LocalIndex, cache: Cache, *requirements: str) -> tuple[Venv, list[ProvisionEvent]]:
    events: list[ProvisionEvent] = []
    venv = await provision_packages(
        requirements, cache=cache, options=ProvisionOptions(index_url=index.url), on_event=events.append
    )
    return venv, events


def phases(events: list[ProvisionEvent]) -> list[str]:
    return list(dict.fromkeys(event.phase for event in events))


async def test_second_request_is_answered_from_the_cache(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    first, events = await ask(index, cache, "pack")
    assert phases(events) == ["interpreter", "resolve", "install"]
    assert [event.elapsed_s for event in events] == sorted(event.elapsed_s for event in events)
    asked = len(index.requests)
    second, events = await ask(index, cache, "pack")
    assert second == first
    assert phases(events) == ["interpreter", "cached"]
    assert len(index.requests) == asked


async def test_every_input_has_a_part_in_the_key(index: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    package = index.add("pack", "1.0")
    index.add("pack", "0.9")
    plain, _ = await ask(index, cache, "pack")
    older, _ = await ask(index, cache, "pack<1")
    by_pip = await provision_packages(
        ["pack"], cache=cache, options=ProvisionOptions(index_url=index.url, installer="pip")
    )
    alone = await provision_packages(
        ["pack"], cache=cache, options=ProvisionOptions(index_url=index.url), follow_dependencies=False
    )
    elsewhere = await provision_packages(
        ["pack"], cache=cache, options=ProvisionOptions(index_url=(index.root / "simple").as_uri())
    )
    assert len({plain.key, older.key, by_pip.key, alone.key, elsewhere.key}) == 5
    assert package.version == plain.packages["pack"]
    assert older.packages["pack"] == "0.9"


async def test_local_file_counts_by_its_content(index: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    wheel = tmp_path / index.add("pack", "1.0").wheel_name
    wheel.write_bytes(index.add("pack", "1.0").wheel())
    before, _ = await ask(index, cache, f"pack @ {wheel.as_uri()}")
    wheel.write_bytes(index.add("pack", "1.0", files={"added.py": "NEW = True\n"}).wheel())
    after, _ = await ask(index, cache, f"pack @ {wheel.as_uri()}")
    assert before.key != after.key
    assert list(after.path.rglob("added.py"))


@pytest.mark.parametrize("damage", ["no manifest", "half a manifest", "another format", "interpreter gone"])
async def test_entry_that_is_not_whole_is_built_again(index: LocalIndex, cache: Cache, damage: str) -> None:
    index.add("pack", "1.0")
    first, _ = await ask(index, cache, "pack")
    assert first.lease is not None
    first.lease.release()
    manifest = first.path.parent / "manifest.json"
    match damage:
        case "no manifest":
            manifest.unlink()
        case "half a manifest":
            manifest.write_bytes(manifest.read_bytes()[:40])
        case "another format":
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 0}))
        case _:
            first.python.unlink()
            first.python.symlink_to("/nonexistent/python")
    second, events = await ask(index, cache, "pack")
    assert "install" in phases(events)
    assert second.python.exists()
    assert second.path != first.path
    assert not first.path.exists()


async def test_manifest_of_a_newer_release_with_more_fields_is_read(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    first, _ = await ask(index, cache, "pack")
    manifest = first.path.parent / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "invented_later": {"a": 1}}))
    second, _ = await ask(index, cache, "pack")
    assert second == first


async def test_build_whose_process_is_killed_is_finished_by_the_next(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    index.stall = "/pack/pack-1.0"
    builder = await start_builder(cache, index, "pack")
    # the installer is asking for the wheel, so the venv exists and is empty
    assert await asyncio.to_thread(index.stalled.wait, 50)
    builder.send_signal(signal.SIGKILL)
    await builder.wait()
    index.stall = None
    venv, events = await ask(index, cache, "pack")
    assert "install" in phases(events)
    assert venv.packages == {"pack": "1.0"}
    left = {path.name.partition(".")[0] for path in venv.path.parent.iterdir()}
    assert left == {venv.path.name, "manifest"}


async def test_two_processes_share_one_build(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    builders = [await start_builder(cache, index, "pack") for _ in range(2)]
    reports = [json.loads((await builder.communicate())[0]) for builder in builders]
    assert sum(report["builds"] for report in reports) == 1
    assert len({report["path"] for report in reports}) == 1


async def test_tasks_of_one_process_share_one_build(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    answers = await asyncio.gather(*(ask(index, cache, "pack") for _ in range(4)))
    assert len({venv.path for venv, _ in answers}) == 1
    assert sum("compile" in phases(events) or "resolve" in phases(events) for _, events in answers) == 1


async def test_cancelled_build_leaves_nothing_in_use(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    index.stall = "/pack/pack-1.0"
    task = asyncio.create_task(ask(index, cache, "pack"))
    assert await asyncio.to_thread(index.stalled.wait, 50)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not list(cache.venvs_dir.iterdir())
    assert not _processes_below(cache.root)
    index.stall = None
    venv, _ = await ask(index, cache, "pack")
    assert venv.packages == {"pack": "1.0"}


async def test_unwritable_cache_is_one_error_that_names_it(index: LocalIndex, tmp_path: Path) -> None:
    # below a regular file nobody can make a folder, not even root
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / "cache"
    with pytest.raises(CacheError, match=f"{root} cannot be used") as caught:
        await ask(index, Cache(root), "pack")
    assert "BENCHMAX_CACHE_DIR" in caught.value.hint


async def test_cache_folder_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCHMAX_CACHE_DIR", str(tmp_path / "named"))
    assert Cache().root == tmp_path / "named"


def _processes_below(root: Path) -> list[str]:
    """Command lines of living processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(root) in words:
            found.append(words)
    return found


async def test_files_in_uvs_cache_are_not_asked_for_again(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    await provision_packages(["pack"], cache=cache, options=ProvisionOptions(index_url=index.url, installer="uv"))
    asked_before_install: list[int] = []

    def heard(event: ProvisionEvent) -> None:
        if event.message.startswith("installing"):
            asked_before_install.append(len(index.requests))

    await provision_packages(
        ["pack<2"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer="uv"),
        on_event=heard,
    )
    assert asked_before_install == [len(index.requests)]
