"""Installs in a sandbox: what they may ask and write, and that everything an install is for works all the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import IndexUnreachableError, SandboxUnavailableError, UsageError
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, Venv, provision_packages
from runner.provision.uv import BUILDS, find_uv
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability, network_blocker
from tests.conftest import require
from tests.hostile.test_wheel_pth import state
from tests.integration.local_index import LocalIndex, local_index

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
FAMILIES = pytest.mark.parametrize("installer", ["uv", "pip"])
CONFINED = pytest.mark.parametrize("level", ["landlock", "namespaces"])

BACKEND = """
import os, zipfile
name = "{name}"

def build_wheel(directory, settings=None, metadata=None):
    {before}
    file = f"{{name}}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, file), "w") as wheel:
        wheel.writestr(f"{{name}}.py", "")
        wheel.writestr(f"{{name}}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: 1.0\\n")
        tags = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{{name}}-1.0.dist-info/WHEEL", tags)
        wheel.writestr(f"{{name}}-1.0.dist-info/RECORD", "")
    return file
"""


def backend(name: str, before: str = "pass") -> str:
    return BACKEND.format(name=name, before=before)


async def made(
    cache: Cache,
    *requirements: str,
    index: str = "https://unused.invalid/simple",
    installer: Family = "uv",
    level: Level = "namespaces",
    events: list[ProvisionEvent] | None = None,
    **options: object,
) -> Venv:
    require(availability(level).available, f"the sandbox level {level}")
    chosen = ProvisionOptions(index_url=index, installer=installer, sandbox=level, **options)  # type: ignore[arg-type]
    heard = (events if events is not None else []).append
    return await provision_packages(requirements, cache=cache, options=chosen, on_event=heard)


# -- levels ---------------------------------------------------------------------------------------------------


def test_level_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sandbox 'jail' is not known\. Use one of: auto, off, landlock, namespaces"):
        ProvisionOptions(sandbox="jail")


async def test_level_that_does_not_work_here_is_an_error_and_no_weaker_one_is_taken(
    index: LocalIndex, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(level: Level, machine: object) -> None:
        raise SandboxUnavailableError(f"sandbox {level}: there is none.")

    monkeypatch.setattr("runner.sandbox.levels.require_level", unavailable)
    index.add("pack", "1.0")
    options = ProvisionOptions(index_url=index.url, sandbox="landlock")
    with pytest.raises(SandboxUnavailableError, match="sandbox landlock: there is none"):
        await provision_packages(["pack"], cache=cache, options=options)
    assert not index.requests


# -- sources --------------------------------------------------------------------------------------------------


@CONFINED
@FAMILIES
async def test_newest_release_is_taken_also_where_it_has_to_be_built(
    index: LocalIndex, cache: Cache, installer: Family, level: Level
) -> None:
    index.add("pack", "0.9")
    index.add_sdist("pack", "1.0", backend("pack"))
    index.add("wheels", "1.0")
    venv = await made(cache, "pack", "wheels", index=index.url, installer=installer, level=level)
    assert venv.packages == {"pack": "1.0", "wheels": "1.0"}


@FAMILIES
async def test_what_was_built_once_is_not_built_again(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add_sdist("pack", "1.0", backend("pack"))
    index.add("more", "1.0")
    first, second = list[ProvisionEvent](), list[ProvisionEvent]()
    await made(cache, "pack", index=index.url, installer=installer, events=first)
    await made(cache, "pack", "more", index=index.url, installer=installer, events=second)
    built = [[event for event in events if event.message == "building pack 1.0"] for events in (first, second)]
    assert [len(found) for found in built] == [1, 0]


async def test_what_was_built_without_a_sandbox_is_built_again_in_one(index: LocalIndex, cache: Cache) -> None:
    index.add_sdist("pack", "1.0", backend("pack"))
    index.add("more", "1.0")
    events: list[ProvisionEvent] = []
    await made(cache, "pack", index=index.url, level="off")
    await made(cache, "pack", "more", index=index.url, events=events)
    assert any(event.message == "building pack 1.0" for event in events)


@FAMILIES
async def test_source_that_changed_under_its_name_is_built_again(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add_sdist("pack", "1.0", backend("pack"))
    await made(cache, "pack", index=index.url, installer=installer)
    index.add_sdist("pack", "1.0", backend("pack", "os.getpid()"))
    index.add("more", "1.0")
    events: list[ProvisionEvent] = []
    await made(cache, "pack", "more", index=index.url, installer=installer, events=events)
    assert any(event.message == "building pack 1.0" for event in events)


@CONFINED
@FAMILIES
async def test_folder_is_built_in_a_copy_with_its_programs(
    cache: Cache, installer: Family, level: Level, tmp_path: Path
) -> None:
    source = tmp_path / "kit"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "kit"\ndynamic = ["version"]\n'
    )
    (source / "configure").write_text("#!/bin/sh\necho done > configured\n")
    (source / "configure").chmod(0o755)
    (source / "backend.py").write_text(
        backend("kit", "import subprocess; subprocess.run(['./configure'], check=True); open('configured').close()")
    )
    tmp_path.chmod(0o755)
    before = state(source)
    venv = await made(cache, f"kit @ {source.as_uri()}", installer=installer, level=level)
    assert venv.packages == {"kit": "1.0"}
    assert state(source) == before


async def test_uv_that_cannot_be_kept_from_building_is_given_nothing_it_could_spoil(
    index: LocalIndex, cache: Cache
) -> None:
    found = find_uv()
    assert found is not None
    index.add_sdist("pack", "1.0", backend("pack"))
    cache.prepare()
    cache.write_json(cache.tools_dir / f"uv-{found[1]}.json", {"kept": False})
    assert (await made(cache, "pack", index=index.url)).packages == {"pack": "1.0"}
    assert not list(cache.uv_dir.glob("sdists-*/*/*/pack"))


async def test_folder_for_builds_that_somebody_made_in_uvs_cache_is_closed_again(
    index: LocalIndex, cache: Cache
) -> None:
    (cache.uv_dir / BUILDS / "old").mkdir(parents=True)
    index.add_sdist("pack", "1.0", backend("pack"))
    assert (await made(cache, "pack", index=index.url)).packages == {"pack": "1.0"}
    assert (cache.uv_dir / BUILDS).is_file()


@FAMILIES
async def test_file_index_and_folder_of_links_are_seen_in_a_sandbox(
    cache: Cache, installer: Family, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    with local_index(tmp_path / "index") as index:
        index.add("pack", "1.0")
        linked = index.add("linked", "1.0")
        folder = tmp_path / "links"
        folder.mkdir()
        shutil.move(tmp_path / "index" / "simple" / "linked" / linked.wheel_name, folder)
        shutil.rmtree(tmp_path / "index" / "simple" / "linked")
    venv = await made(
        cache,
        "pack",
        "linked",
        index=f"file://{tmp_path}/index/simple",
        installer=installer,
        find_links=(str(folder),),
    )
    assert venv.packages == {"linked": "1.0", "pack": "1.0"}


# -- hosts ----------------------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> LocalIndex:
    """A server of files that no index has named."""
    require(network_blocker() is None, "a network of its own")
    return LocalIndex(tmp_path / "other")


@FAMILIES
async def test_host_of_files_that_nobody_named_is_refused_with_the_option_that_allows_it(
    index: LocalIndex, cache: Cache, other: LocalIndex, installer: Family
) -> None:
    with other:
        package = other.add("pack", "1.0")
        address = f"{other.url}/pack/{package.wheel_name}"
        index.add_link("pack", address, package.wheel())
        host = address.split("/")[2]
        with pytest.raises(IndexUnreachableError) as caught:
            await made(cache, "pack", index=index.url, installer=installer)
        assert f"an installer asked for {host} (" in caught.value.message
        assert f"--file-host {host}" in caught.value.hint
        assert not other.requests
        venv = await made(cache, "pack", index=index.url, installer=installer, file_hosts=(host,))
    assert venv.packages == {"pack": "1.0"}


@FAMILIES
async def test_host_on_this_machine_that_only_a_requirement_names_is_refused(
    index: LocalIndex, cache: Cache, other: LocalIndex, installer: Family
) -> None:
    with other:
        package = other.add("pack", "1.0")
        address = f"{other.url}/pack/{package.wheel_name}"
        host = address.split("/")[2]
        with pytest.raises(IndexUnreachableError, match="only the bundle names it, and it is on this machine"):
            await made(cache, f"pack @ {address}", index=index.url, installer=installer)
        assert not other.requests
        venv = await made(cache, f"pack @ {address}", index=index.url, installer=installer, file_hosts=(host,))
    assert venv.packages == {"pack": "1.0"}


@FAMILIES
async def test_repository_is_fetched_through_the_only_way_out(
    index: LocalIndex, cache: Cache, other: LocalIndex, installer: Family, tmp_path: Path
) -> None:
    require(shutil.which("git"), "git")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (repository / "backend.py").write_text(backend("kit"))
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first"), ("update-server-info",)):
        subprocess.run(["git", *identity, *words], cwd=repository, check=True)
    shutil.copytree(repository / ".git", other.root / "kit.git")
    with other:
        address = f"git+{other.url.removesuffix('simple')}kit.git@main"
        host = address.split("/")[2]
        venv = await made(cache, f"kit @ {address}", index=index.url, installer=installer, file_hosts=(host,))
    assert venv.packages == {"kit": "1.0"}


async def test_index_with_credentials_is_asked_by_the_relay_from_a_sandbox_too(tmp_path: Path, cache: Cache) -> None:
    with LocalIndex(tmp_path / "private", credentials=("me", "word-of-mine")) as private:
        private.add_sdist("pack", "1.0", backend("pack"))
        venv = await made(cache, "pack", index=private.url_with_credentials)
    assert venv.packages == {"pack": "1.0"}
