"""What breaks installs elsewhere, tried on ours: real packages, odd surroundings, several bundles at once."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from packaging.version import Version

from benchmax.bundle import dump_bundle
from runner import isolate
from runner.errors import BuildError, InterpreterNotFoundError, RequirementError
from runner.packing import PackRequest, pack
from runner.provision import Cache, ProvisionOptions, environment, provision_packages
from runner.provision.cache_pruning import prune
from runner.provision.candidates import running_series
from runner.provision.interpreter import find_interpreter
from tests.conftest import require
from tests.integration.environments import reasoning_tasks, surroundings
from tests.integration.isolation import requests_for, texts
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
FAMILIES = pytest.mark.parametrize("installer", ["uv", "pip"])
HERE = running_series()

# -- real packages ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_reasoning_gym_is_built_installed_and_run_as_an_environment(shared_cache: Path, tmp_path: Path) -> None:
    require(shutil.which("gcc", path=environment.SYSTEM_PATH), "a C compiler")
    bundle = dump_bundle(
        reasoning_tasks.ReasoningTasks,
        constructor_args={"tasks": ["chain_sum", "zebra_puzzles"]},
        pip_dependencies=["reasoning-gym"],
        local_modules=[reasoning_tasks],
    )
    async with isolate(bundle, cache=Cache(shared_cache)) as env:
        assert {"reasoning-gym", "pycosat", "cellpylib", "zss"} <= env.venv.packages.keys()
        dataset = await env.create_dataset("eval", tmp_path)
        assert [example.id.rpartition("-")[0] for example in dataset] == ["chain_sum"] * 2 + ["zebra_puzzles"] * 2
        for example in dataset:
            outcomes = await env.run_group(requests_for(example, 2))
            assert texts(outcomes) == [None, None]
            knowing, guessing = (outcome.rewards for outcome in outcomes.values())
            assert knowing == {"score": 1.0, "asked": 1.0, "solved": 1.0}
            assert guessing is not None
            assert guessing["score"] < 1.0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("installer", "requirement"), [("uv", "reasoning-gym"), ("pip", "pycosat")])
async def test_without_a_compiler_the_package_and_the_remedy_are_named(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: Family, requirement: str
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(environment, "SYSTEM_PATH", str(tmp_path / "bin"))
    with pytest.raises(BuildError) as caught:
        await provision_packages([requirement], cache=cache, options=ProvisionOptions(installer=installer))
    assert caught.value.message.startswith("build failed: no C compiler for 'pycosat")
    assert "Install one (such as gcc)" in caught.value.hint
    assert "a version that has a wheel" in caught.value.hint
    assert caught.value.fault == "bundle"


@pytest.mark.slow
@pytest.mark.timeout(600)
@FAMILIES
async def test_package_that_needs_one_without_any_final_release_installs(shared_cache: Path, installer: Family) -> None:
    venv = await provision_packages(
        ["chromadb>=1.5.9,<2"], cache=Cache(shared_cache), options=ProvisionOptions(installer=installer)
    )
    assert Version(venv.packages["opentelemetry-semantic-conventions"]).is_prerelease
    # those that never had another kind, and no others
    unasked = [name for name, version in venv.packages.items() if Version(version).is_prerelease]
    assert all(name.startswith("opentelemetry-") for name in unasked)
    assert venv.warnings == ()


# -- several at once -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_bundles_with_incompatible_pins_and_series_run_at_once_and_each_reports_its_own(
    shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    other = "3.12" if HERE != "3.12" else "3.13"
    try:
        found: object = await find_interpreter(other, python=None, cache=cache)
    except InterpreterNotFoundError:
        found = None
    require(found, f"Python {other}")
    source = Path(surroundings.__file__)
    target = f"{shutil.copy(source, tmp_path / 'surroundings.py')}:Surroundings"

    async def ran(series: str, release: str) -> dict[str, Any]:
        request = PackRequest(
            target=target,
            requirements=[f"tabulate=={release}"],
            python=series,
            arguments={"distribution": "tabulate"},
        )
        artifact = await pack(request, tmp_path / f"{series}-{release}", cache=cache)
        async with isolate(artifact, cache=cache) as env:
            ready.append(release)
            if len(ready) == len(wanted):
                all_ready.set()
            # nobody runs before all are up, so they are there at once
            await all_ready.wait()
            dataset = await env.create_dataset("eval", tmp_path)
            (text,) = texts(await env.run_group(requests_for(dataset[0])))
            assert env.venv.packages["tabulate"] == release
        assert text is not None
        answer: dict[str, Any] = json.loads(text)
        return answer

    wanted = [(HERE, "0.8.10"), (HERE, "0.9.0"), (other, "0.8.9")]
    ready: list[str] = []
    all_ready = asyncio.Event()
    answers = await asyncio.gather(*(ran(series, release) for series, release in wanted))
    assert [(answer["series"], answer["release"]) for answer in answers] == wanted


@FAMILIES
async def test_cache_can_be_pruned_again_and_again_while_many_install(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    names = [f"part-{letter}" for letter in "abcdef"]
    index.add("shared", "1.0", files={"shared_data.py": "X = 1\n" * 10_000})
    for name in names:
        index.add(name, "1.0", ["shared"])
    cache.prepare()
    stop = threading.Event()

    def clean() -> int:
        rounds = 0
        while not stop.is_set():
            prune(cache, max_bytes=0)
            rounds += 1
        return rounds

    cleaning = asyncio.ensure_future(asyncio.to_thread(clean))
    try:
        options = ProvisionOptions(index_url=index.url, installer=installer)
        venvs = await asyncio.gather(*(provision_packages([name], cache=cache, options=options) for name in names))
    finally:
        stop.set()
    assert await cleaning > 0
    assert [set(venv.packages) for venv in venvs] == [{name, "shared"} for name in names]


# -- mistakes and their corrections ----------------------------------------------------------------------------


@FAMILIES
async def test_bundle_that_failed_to_install_works_once_its_requirement_exists(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    options = ProvisionOptions(index_url=index.url, installer=installer)
    for _ in range(2):
        with pytest.raises(RequirementError, match="no package named 'late-comer'"):
            await provision_packages(["late-comer"], cache=cache, options=options)
    assert not list(cache.venvs_dir.iterdir())
    index.add("late-comer", "1.0")
    venv = await provision_packages(["late-comer"], cache=cache, options=options)
    assert venv.packages == {"late-comer": "1.0"}


@pytest.mark.parametrize(
    "line", ["-r requirements.txt", "-e .", "./pack-1.0-py3-none-any.whl", "--index-url https://elsewhere.example", ""]
)
async def test_lines_of_a_requirements_file_are_no_requirements(cache: Cache, line: str) -> None:
    with pytest.raises(RequirementError, match="is not a requirement") as caught:
        await provision_packages([line], cache=cache)
    assert "PEP 508" in caught.value.hint
    assert not cache.root.exists()


# -- what lies around ------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
async def test_worker_imports_nothing_from_its_callers_paths_folder_or_user_site(
    shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "on_python_path": tmp_path / "path",
        "near_by": tmp_path / "cwd",
        "in_user_site": tmp_path / f"home/.local/lib/python{HERE}/site-packages",
        "in_user_base": tmp_path / f"base/lib/python{HERE}/site-packages",
    }
    for name, folder in places.items():
        folder.mkdir(parents=True)
        for file in (f"{name}.py", "json.py", "numpy.py", "sitecustomize.py"):
            (folder / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    bundle = dump_bundle(
        surroundings.Surroundings,
        constructor_args={"modules": [*places, "json", "numpy", "sitecustomize"]},
        local_modules=[surroundings],
    )
    monkeypatch.setenv("PYTHONPATH", str(places["on_python_path"]))
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "base"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(places["near_by"])
    async with isolate(bundle, cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        (text,) = texts(await env.run_group(requests_for(dataset[0])))
        base = env.venv.base_python.parent.parent
    assert text is not None
    found = json.loads(text)
    standard = found["origins"].pop("json")
    assert Path(standard).is_relative_to(base)
    assert set(found["origins"].values()) == {None}
    assert not [entry for entry in found["path"] if entry in ("", ".") or Path(entry).is_relative_to(tmp_path / "home")]
    assert not {str(folder) for folder in places.values()} & set(found["path"])
    assert not (tmp_path / "ran").exists()
