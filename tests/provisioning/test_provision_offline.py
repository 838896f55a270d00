"""Without the network the cache and local files suffice, and everything that is missing is named at once."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmax.bundle import BundleMetadata
from runner.errors import IndexUnreachableError, ProvisionError, RequirementError
from runner.provision import Cache, ProvisionOptions, Venv, make_lock, provision, provision_packages
from tests.integration.command_line import CommandLine
from tests.integration.local_index import LocalIndex, Package

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
both = pytest.mark.parametrize("installer", ["uv", "pip"])
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
NEEDS = {"cloudpickle": "3.1", "httpx": "0.28.0", "openai": "2.0", "packaging": "26.0", "msgspec": "0.20"}


def bundle(*requirements: str) -> BundleMetadata:
    ours = importlib.metadata.version("benchmax")
    return BundleMetadata(
        pip_dependencies=requirements, python_version=SERIES, benchmax_version=ours, env_class_source=None
    )


@pytest.fixture
def cut(index: LocalIndex) -> Callable[[], int]:
    """Start counting requests to an index that from now on refuses all; returns how many there were since."""
    for name, version in NEEDS.items():
        index.add(name, version)
    index.add("task-kit", "1.0", ["child"])
    index.add("child", "1.0")
    return lambda: len(index.requests)


async def ask(index: LocalIndex, cache: Cache, installer: Family, *wanted: str, **more: Any) -> Venv:
    chosen = ProvisionOptions(index_url=index.url, installer=installer, **more)
    return await provision_packages(wanted, cache=cache, options=chosen)


def folder_of(root: Path, *packages: Package) -> str:
    """Put wheels into a folder."""
    root.mkdir()
    for package in packages:
        (root / package.wheel_name).write_bytes(package.wheel())
    return str(root)


@both
async def test_venv_in_the_cache_needs_no_network(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, installer: Family
) -> None:
    online = await ask(index, cache, installer, "task-kit")
    before = cut()
    offline = await ask(index, cache, installer, "task-kit", offline=True)
    assert offline == online
    assert cut() == before


@both
async def test_files_in_the_cache_make_a_locked_venv_without_the_network(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path, installer: Family
) -> None:
    chosen = ProvisionOptions(index_url=index.url, installer=installer)
    lock, _ = await make_lock(bundle("task-kit"), cache=cache, options=chosen)
    (tmp_path / "pylock.toml").write_text(lock.text)
    await provision(bundle("task-kit"), cache=cache, options=chosen)
    before = cut()
    offline = ProvisionOptions(index_url=index.url, installer=installer, offline=True, lock=tmp_path / "pylock.toml")
    venv = await provision(bundle("task-kit"), cache=cache, options=offline)
    assert venv.packages["child"] == "1.0"
    assert cut() == before


async def test_uvs_cache_is_resolved_from_without_the_network(
    index: LocalIndex, cut: Callable[[], int], cache: Cache
) -> None:
    await ask(index, cache, "uv", "task-kit")
    before = cut()
    venv = await ask(index, cache, "uv", "task-kit<2", offline=True)
    assert venv.packages == {"child": "1.0", "task-kit": "1.0"}
    assert cut() == before


async def test_credentials_and_extra_indexes_do_not_matter_once_the_cache_is_warm(cache: Cache, tmp_path: Path) -> None:
    with LocalIndex(tmp_path / "index", credentials=("me-zqx", "word-zqx")) as index:
        index.add("task-kit", "1.0")
        url = index.url_with_credentials
        await provision_packages(["task-kit"], cache=cache, options=ProvisionOptions(index_url=url, installer="uv"))
    # its port is closed now
    venv = await provision_packages(
        ["task-kit<2"], cache=cache, options=ProvisionOptions(index_url=url, installer="uv", offline=True)
    )
    assert venv.packages == {"task-kit": "1.0"}


@both
async def test_all_that_is_missing_from_a_lock_is_named_at_once(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path, installer: Family
) -> None:
    chosen = ProvisionOptions(index_url=index.url, installer=installer)
    lock, _ = await make_lock(bundle("task-kit"), cache=Cache(tmp_path / "other"), options=chosen)
    (tmp_path / "pylock.toml").write_text(lock.text)
    await provision_packages(["child", "msgspec"], cache=cache, options=chosen)
    before = cut()
    offline = ProvisionOptions(index_url=index.url, installer=installer, offline=True, lock=tmp_path / "pylock.toml")
    with pytest.raises(IndexUnreachableError, match="offline, and the cache does not hold") as caught:
        await provision(bundle("task-kit"), cache=cache, options=offline)
    for name in ("cloudpickle==3.1", "httpx==0.28.0", "openai==2.0", "packaging==26.0", "task-kit==1.0"):
        assert name in caught.value.message
    for name in ("child", "msgspec", "benchmax"):
        assert name not in caught.value.message
    assert "\n" not in caught.value.message
    assert cut() == before


@both
async def test_all_that_is_missing_without_a_lock_is_named_at_once(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path, installer: Family
) -> None:
    near = folder_of(tmp_path / "near", Package(name="near", version="1.0"))
    before = cut()
    with pytest.raises(IndexUnreachableError, match="neither the cache nor find-links holds") as caught:
        await ask(index, cache, installer, "task-kit", "near", "third==3", offline=True, find_links=(near,))
    assert "task-kit" in caught.value.message
    assert "third" in caught.value.message
    assert "near " not in caught.value.message.partition("holds")[2]
    assert cut() == before


async def test_what_dependencies_miss_is_named_with_uv(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path
) -> None:
    del cut
    near = folder_of(tmp_path / "near", Package(name="near", version="1.0", requires=["left", "right>=2"]))
    with pytest.raises(IndexUnreachableError) as caught:
        await ask(index, cache, "uv", "near", offline=True, find_links=(near,))
    assert caught.value.message.endswith("holds left and right.")


@both
async def test_folder_of_wheels_is_enough(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path, installer: Family
) -> None:
    near = folder_of(
        tmp_path / "near",
        Package(name="task-kit", version="3.0", requires=["child"]),
        Package(name="child", version="0.5"),
        *(Package(name=name, version=version) for name, version in NEEDS.items()),
    )
    before = cut()
    chosen = ProvisionOptions(index_url=index.url, installer=installer, offline=True, find_links=(near,))
    venv = await provision(bundle("task-kit"), cache=cache, options=chosen)
    assert (venv.packages["task-kit"], venv.packages["child"]) == ("3.0", "0.5")
    assert cut() == before


@both
async def test_folder_of_wheels_serves_a_lock_that_was_made_from_an_index(
    index: LocalIndex, cut: Callable[[], int], tmp_path: Path, installer: Family
) -> None:
    wheels = [index.add("task-kit", "1.0", ["child"]), index.add("child", "1.0")]
    near = folder_of(
        tmp_path / "near", *wheels, *(Package(name=name, version=version) for name, version in NEEDS.items())
    )
    chosen = ProvisionOptions(index_url=index.url, installer=installer)
    lock, _ = await make_lock(bundle("task-kit"), cache=Cache(tmp_path / "a"), options=chosen)
    (tmp_path / "pylock.toml").write_text(lock.text)
    before = cut()
    offline = ProvisionOptions(
        index_url=index.url, installer=installer, offline=True, find_links=(near,), lock=tmp_path / "pylock.toml"
    )
    venv = await provision(bundle("task-kit"), cache=Cache(tmp_path / "b"), options=offline)
    assert venv.packages["task-kit"] == "1.0"
    assert cut() == before
    # the digest still counts
    (Path(near) / wheels[0].wheel_name).write_bytes(Package(name="task-kit", version="1.0", requires=["x"]).wheel())
    with pytest.raises(ProvisionError, match="digest"):
        await provision(bundle("task-kit"), cache=Cache(tmp_path / "c"), options=offline)


@both
async def test_prerelease_rule_holds_offline(
    index: LocalIndex, cut: Callable[[], int], cache: Cache, tmp_path: Path, installer: Family
) -> None:
    del cut
    near = folder_of(
        tmp_path / "near",
        Package(name="parent", version="1.0", requires=["transitive>=2.0rc1"]),
        Package(name="transitive", version="1.0"),
        Package(name="transitive", version="2.0rc1"),
        Package(name="young", version="0.1b1"),
    )
    with pytest.raises(RequirementError, match=r"transitive 2\.0rc1"):
        await ask(index, cache, installer, "parent", offline=True, find_links=(near,))
    venv = await ask(index, cache, installer, "young", offline=True, find_links=(near,))
    assert venv.packages == {"young": "0.1b1"}


def test_command_line_offline_names_what_is_missing(shared_cache: Path, tmp_path: Path) -> None:
    del shared_cache
    command = CommandLine(tmp_path / "empty", tmp_path)
    said = command("run", str(command.artifact()), "--offline").error(3)
    assert said.startswith("offline, and the cache does not hold ")
    for name in ("cloudpickle", "httpx", "msgspec", "openai", "packaging"):
        assert name in said
