"""With a lock nothing is resolved, what is installed is the same everywhere, and a stale one is refused."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmax.bundle import Bundle, BundleMetadata
from runner import isolate
from runner.errors import InterpreterNotFoundError, ProvisionError, RequirementError, UsageError
from runner.provision import Cache, ExtraIndex, Lock, ProvisionEvent, ProvisionOptions, Venv, make_lock, provision
from tests.integration.command_line import CommandLine
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
both = pytest.mark.parametrize("installer", ["uv", "pip"])
OURS = importlib.metadata.version("benchmax")
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def stocked(index: LocalIndex) -> LocalIndex:
    """An index with stand-ins for what benchmax and the worker need, and a few packages."""
    needs = {"cloudpickle": "3.1", "httpx": "0.28.0", "openai": "2.0", "packaging": "26.0", "msgspec": "0.20"}
    for name, version in needs.items():
        index.add(name, version)
    index.add("task-kit", "1.0", ["child>=1", "only-there; sys_platform == 'win32'"])
    index.add("child", "1.0")
    index.add("only-there", "1.0")
    return index


def bundle(*requirements: str, python: str = SERIES) -> BundleMetadata:
    return BundleMetadata(
        pip_dependencies=requirements, python_version=python, benchmax_version=OURS, env_class_source=None
    )


def options(index: LocalIndex, installer: Family = "uv", **more: Any) -> ProvisionOptions:
    return ProvisionOptions(index_url=index.url, installer=installer, **more)


async def locked(
    folder: Path, metadata: BundleMetadata, cache: Cache, chosen: ProvisionOptions
) -> tuple[Path, dict[str, Any]]:
    """Make a lock and write it to a file."""
    lock, _ = await make_lock(metadata, cache=cache, options=chosen)
    path = folder / "pylock.toml"
    path.write_text(lock.text)
    return path, tomllib.loads(lock.text)


async def install(
    lock: Path, metadata: BundleMetadata, cache: Cache, index: LocalIndex, installer: Family = "uv", **more: Any
) -> Venv:
    return await provision(metadata, cache=cache, options=options(index, installer, lock=lock, **more))


@both
async def test_same_lock_on_two_empty_caches_gives_the_same_packages(
    stocked: LocalIndex, tmp_path: Path, installer: Family
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), Cache(tmp_path / "a"), options(stocked, installer))
    # a resolution would take these
    stocked.add("task-kit", "2.0")
    stocked.add("child", "2.0")
    before = len(stocked.requests)
    first = await install(lock, bundle("task-kit"), Cache(tmp_path / "b"), stocked, installer)
    second = await install(lock, bundle("task-kit"), Cache(tmp_path / "c"), stocked, installer)
    assert json.dumps(first.packages) == json.dumps(second.packages)
    assert first.key == second.key
    assert (first.packages["task-kit"], first.packages["child"]) == ("1.0", "1.0")
    assert first.packages["benchmax"] == OURS
    assert "only-there" not in first.packages
    assert not [path for path in stocked.requests[before:] if path.endswith("/")], "no index page is asked for"


@pytest.mark.parametrize("by", ["uv", "pip"])
async def test_either_installer_installs_what_the_other_locked(
    stocked: LocalIndex, cache: Cache, tmp_path: Path, by: Family
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked, by))
    other: Family = "pip" if by == "uv" else "uv"
    venv = await install(lock, bundle("task-kit"), cache, stocked, other)
    assert venv.packages["child"] == "1.0"
    assert venv.installer.startswith(other)


@both
async def test_lock_says_what_it_was_made_from(
    stocked: LocalIndex, cache: Cache, tmp_path: Path, installer: Family
) -> None:
    chosen = options(stocked, installer, prerelease="explicit", only_binary=True)
    _, data = await locked(tmp_path, bundle("task_kit >= 1", "child"), cache, chosen)
    inputs = data["tool"]["benchmax"]
    assert inputs.pop("installer").startswith(installer)
    assert inputs == {
        "format": 1,
        "requirements": ["child", "task-kit>=1"],
        "python": SERIES,
        "benchmax": ".".join(OURS.split(".")[:2]),
        "index": stocked.url,
        "prerelease": "explicit",
        "only-binary": True,
        "version": OURS,
    }
    assert data["requires-python"] == f"=={SERIES}.*"
    names = [package["name"] for package in data["packages"]]
    assert "benchmax" not in names
    # uv locks for all platforms, pip for this machine, and says so
    assert ("only-there" in names) == (installer == "uv")
    assert ("environments" in data) == (installer == "pip")
    for package in data["packages"]:
        assert all(wheel["hashes"]["sha256"] for wheel in package["wheels"])


async def test_lock_is_for_the_bundles_series_and_no_other(stocked: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    stocked.add("newer-only", "1.0", requires_python=">=3.12")
    try:
        lock, data = await locked(tmp_path, bundle("newer-only", python="3.12"), cache, options(stocked))
    except InterpreterNotFoundError:
        pytest.skip("needs Python 3.12")
    assert data["requires-python"] == "==3.12.*"
    with pytest.raises(RequirementError, match=r"stale: it is for Python 3\.12, not 3\.11.*benchmax lock"):
        await install(lock, bundle("newer-only", python="3.11"), cache, stocked)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("task-kit", "child>=1"), "child>=1 was not required when it was made"),
        ((), "task-kit is not required any more"),
        (("task-kit>=0.5",), "task-kit>=0.5 was not required when it was made; task-kit is not required any more"),
    ],
    ids=["added", "gone", "changed"],
)
async def test_changed_requirement_makes_a_lock_stale(
    stocked: LocalIndex, cache: Cache, tmp_path: Path, wanted: tuple[str, ...], said: str
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked))
    before = len(stocked.requests)
    with pytest.raises(RequirementError, match="is stale") as caught:
        await install(lock, bundle(*wanted), cache, stocked)
    assert said in caught.value.message
    assert str(lock) in caught.value.message
    assert "benchmax lock" in caught.value.hint
    assert len(stocked.requests) == before


async def test_options_that_contradict_a_lock_make_it_stale(stocked: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked))
    with pytest.raises(RequirementError, match="prerelease mode default, not explicit"):
        await install(lock, bundle("task-kit"), cache, stocked, prerelease="explicit")
    with pytest.raises(RequirementError, match="files of any date, not up to 2026-01-31"):
        await install(lock, bundle("task-kit"), cache, stocked, exclude_newer=date(2026, 1, 31))


async def test_lock_of_another_benchmax_series_or_without_what_a_worker_needs_is_stale(
    stocked: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked))
    text = lock.read_text()
    series = ".".join(OURS.split(".")[:2])
    lock.write_text(text.replace(f'benchmax = "{series}"', 'benchmax = "0.1"'))
    with pytest.raises(RequirementError, match=rf"it is for benchmax 0\.1, not {series}"):
        await install(lock, bundle("task-kit"), cache, stocked)
    lock.write_text(text.replace('name = "msgspec"', 'name = "msgspec-else"'))
    with pytest.raises(RequirementError, match="it holds no msgspec"):
        await install(lock, bundle("task-kit"), cache, stocked)
    lock.write_text(text.replace('name = "openai"\nversion = "2.0"', 'name = "openai"\nversion = "1.0"'))
    with pytest.raises(RequirementError, match=r"it holds openai 1\.0, but openai<4,>=2\.0 is needed"):
        await install(lock, bundle("task-kit"), cache, stocked)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no lock-version"),
        ("[[[", "line 1"),
        ('lock-version = "2.0"', "no lock-version 1"),
        ('lock-version = "1.0"\npackages = [{ version = "1" }]', "not named tables"),
        ('lock-version = "1.0"\n[[packages]]\nname = "a"\nmarker = "so so"', "so so"),
        ('lock-version = "1.0"\n[[packages]]\nname = "a"\nsdist = { url = "https://h/a.zip" }', "digest"),
        ("x = " + "[" * 100_000, ""),
    ],
    ids=["empty", "no toml", "other version", "no name", "bad marker", "no digest", "deep"],
)
async def test_file_that_is_no_lock_is_one_error(cache: Cache, tmp_path: Path, text: str, said: str) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text(text)
    with pytest.raises(RequirementError, match="is not a lock") as caught:
        await provision(bundle(), cache=cache, options=ProvisionOptions(lock=lock))
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@both
async def test_file_whose_content_changed_since_is_refused(
    stocked: LocalIndex, cache: Cache, tmp_path: Path, installer: Family
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked, installer))
    stocked.add("child", "1.0", files={"extra.py": "EVIL = True\n"})
    with pytest.raises(ProvisionError, match="is not the one its digest stands for"):
        await install(lock, bundle("task-kit"), Cache(tmp_path / "other"), stocked, installer)


@both
async def test_lock_that_is_demanded_must_be_there(cache: Cache, installer: Family, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a lock is demanded"):
        await provision(bundle(), cache=cache, options=ProvisionOptions(locked=True, installer=installer))
    with pytest.raises(UsageError, match="there is no lock at"):
        await provision(bundle(), cache=cache, options=ProvisionOptions(lock=tmp_path / "pylock.toml"))
    assert not cache.root.exists()


@both
async def test_credentials_reach_no_lock(stocked: LocalIndex, cache: Cache, tmp_path: Path, installer: Family) -> None:
    with LocalIndex(tmp_path / "own", credentials=("me-zqx", "word-zqx")) as own:
        own.add("own-kit", "1.0")
        chosen = ProvisionOptions(
            index_url=stocked.url,
            extra_indexes=(ExtraIndex(names=("own-kit",), url=own.url_with_credentials),),
            installer=installer,
        )
        lock, data = await locked(tmp_path, bundle("own-kit"), cache, chosen)
        text = lock.read_text()
        assert "zqx" not in text
        assert ".invalid" not in text
        (entry,) = [package for package in data["packages"] if package["name"] == "own-kit"]
        assert entry["wheels"][0]["url"].startswith(own.url)
        assert data["tool"]["benchmax"]["extra-indexes"] == {"own-kit": own.url}
        # and with them it installs
        fresh = Cache(tmp_path / "fresh")
        venv = await provision(
            bundle("own-kit"),
            cache=fresh,
            options=ProvisionOptions(
                index_url=stocked.url, extra_indexes=chosen.extra_indexes, installer=installer, lock=lock
            ),
        )
        assert venv.packages["own-kit"] == "1.0"


@pytest.mark.parametrize("url", ["https://me:zqx@host.example/k-1-py3-none-any.whl", "git+https://zqx@host.example/k"])
async def test_requirement_with_credentials_of_its_own_is_not_locked(cache: Cache, url: str) -> None:
    with pytest.raises(RequirementError, match="address of 'k' holds a user name or a password") as caught:
        await make_lock(bundle(f"k @ {url}"), cache=cache)
    assert "zqx" not in str(caught.value) + caught.value.detail


async def test_local_wheel_is_locked_by_content_and_a_folder_is_not(
    stocked: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    package = stocked.add("near", "1.0")
    wheel = tmp_path / package.wheel_name
    wheel.write_bytes(package.wheel())
    lock, _ = await locked(tmp_path, bundle(f"near @ {wheel.as_uri()}"), cache, options(stocked))
    assert (await install(lock, bundle(f"near @ {wheel.as_uri()}"), cache, stocked)).packages["near"] == "1.0"
    wheel.write_bytes(stocked.add("near", "1.0", files={"added.py": "NEW = 1\n"}).wheel())
    with pytest.raises(ProvisionError, match="digest"):
        await install(lock, bundle(f"near @ {wheel.as_uri()}"), Cache(tmp_path / "other"), stocked)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "tree"\nversion = "1.0"\ndependencies = []\n')
    with pytest.raises(RequirementError, match="'tree' comes from a folder"):
        await make_lock(bundle(f"tree @ {project.as_uri()}"), cache=cache, options=options(stocked))


async def test_lock_of_another_tool_is_taken_when_it_holds_what_is_needed(
    stocked: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    lock, _ = await locked(tmp_path, bundle("task-kit"), cache, options(stocked))
    lock.write_text(lock.read_text().partition("[tool.benchmax]")[0])
    assert (await install(lock, bundle("task-kit"), cache, stocked)).packages["task-kit"] == "1.0"
    with pytest.raises(RequirementError, match=r"holds task-kit 1\.0, but task-kit>=2 is needed"):
        await install(lock, bundle("task-kit>=2"), cache, stocked)
    with pytest.raises(RequirementError, match="holds no other-kit"):
        await install(lock, bundle("other-kit"), cache, stocked)


async def test_lock_for_another_kind_of_machine_is_refused(stocked: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    lock, data = await locked(tmp_path, bundle("task-kit"), cache, options(stocked, "pip"))
    (here,) = data["environments"]
    lock.write_text(lock.read_text().replace(here, "sys_platform == 'plan9'"))
    with pytest.raises(RequirementError, match="made for another kind of machine: sys_platform == 'plan9'"):
        await install(lock, bundle("task-kit"), cache, stocked)


async def test_bundle_that_pins_another_release_of_benchmax_has_it_in_its_lock(
    stocked: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    stocked.add("benchmax", "0.2.4")
    lock, data = await locked(tmp_path, bundle("benchmax==0.2.4"), cache, options(stocked))
    assert {package["name"] for package in data["packages"]} == {"benchmax", "msgspec"}
    assert (await install(lock, bundle("benchmax==0.2.4"), cache, stocked)).packages["benchmax"] == "0.2.4"


async def test_equal_inputs_give_equal_locks(stocked: LocalIndex, tmp_path: Path) -> None:
    texts = set()
    for name in ("a", "b"):
        lock, _ = await make_lock(bundle("task-kit"), cache=Cache(tmp_path / name), options=options(stocked))
        texts.add(lock.text)
        assert Lock.parse(lock.text.encode()).data == lock.data
    assert len(texts) == 1


async def test_isolate_takes_the_artifacts_own_lock(stocked: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    metadata = bundle("task-kit")
    (tmp_path / "env-cls.pkl").write_bytes(b"never read")
    (tmp_path / "env-metadata.json").write_bytes(metadata.to_json_bytes())
    other, _ = await locked(tmp_path, bundle("child"), cache, options(stocked))
    events: list[ProvisionEvent] = []
    for env in (
        isolate(tmp_path, cache=cache, provisioning=options(stocked)),
        isolate(Bundle(b"never read", metadata), lock=other, cache=cache, provisioning=options(stocked)),
    ):
        with pytest.raises(RequirementError, match="is stale"):
            await env.start()
    with pytest.raises(UsageError, match="holds no pylock"):
        other.unlink()
        isolate(tmp_path, provisioning=ProvisionOptions(locked=True))
    assert not events


def test_lock_prepare_and_run_on_the_command_line(stocked: LocalIndex, shared_cache: Path, tmp_path: Path) -> None:
    command = CommandLine(shared_cache, tmp_path)
    artifact = command.artifact()
    assert "holds no pylock.toml" in command("prepare", str(artifact), "--locked").error(2)
    out = command("lock", str(artifact)).good()
    assert "pylock.toml: " in out
    assert "msgspec" in out
    prepared = json.loads(command("prepare", str(artifact), "--locked", "--json").good())
    lock = tomllib.loads((artifact / "pylock.toml").read_text())
    pinned = {package["name"]: package["version"] for package in lock["packages"]}
    assert {name: pinned[name] for name in prepared["packages"] if name != "benchmax"} == {
        name: version for name, version in prepared["packages"].items() if name != "benchmax"
    }
    command("run", str(artifact), "--locked", "--group-size", "1", "--max-examples", "1").good()
    metadata = json.loads((artifact / "env-metadata.json").read_text())
    metadata["pip_dependencies"] = ["humanize"]
    (artifact / "env-metadata.json").write_text(json.dumps(metadata))
    for words in (("prepare",), ("run",)):
        said = command(*words, str(artifact)).error(1)
        assert "humanize was not required" in said
        assert "Run `benchmax lock` again" in said
