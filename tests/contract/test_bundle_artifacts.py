"""Recorded artifacts of other releases load and give the recorded outcomes; ours do the same.

The artifacts were made by Python 3.12, so they are loaded by one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from .bundle_lab import Lab

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures" / "contract"
EXPECTED = json.loads((FIXTURES / "bundles" / "expected.json").read_text())

ARTIFACTS = ["plain"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RUN_GROUPS = """
import asyncio, pathlib
from benchmax.envs import RolloutRequest, StaticBearerAuth

async def outcomes_of(env, base_dir, model_url):
    dataset = await env.create_dataset("eval", pathlib.Path(base_dir))
    found = {}
    for example in dataset:
        requests = [
            RolloutRequest(f"r{number}", example, "m", model_url, StaticBearerAuth("t"), "eval")
            for number in range(3)
        ]
        group = await env.run_group(requests)
        found[example.id] = {
            name: {
                "has_error": outcome.error is not None,
                "rewards": dict(outcome.rewards),
                "termination_reason": outcome.termination_reason,
            }
            for name, outcome in group.items()
        }
    return found
"""


def _candidates() -> Iterator[str]:
    if sys.version_info[:2] == (3, 12):
        yield sys.executable
    found = subprocess.run(
        [sys.executable, "-m", "uv", "--no-config", "python", "find", "--no-python-downloads", "3.12"],
        capture_output=True,
        text=True,
        check=False,
    )
    yield found.stdout.strip()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield shutil.which("python3.12", path=folder) or ""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob("versions/3.12*/bin/python3.12")))


def _first_working(candidates: Iterable[str]) -> str | None:
    for python in filter(None, candidates):
        # a version manager's stand-in exists for every version and works for the chosen ones
        answer = subprocess.run(
            [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.stdout.split() == ["3", "12"]:
            return python
    return None


@pytest.fixture(scope="session")
def python312(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a Python 3.12 venv with this package installed."""
    base = _first_working(_candidates())
    if base is None:
        reason = "no Python 3.12 found by uv, on PATH or in pyenv"
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("python312")
    uv = [sys.executable, "-m", "uv", "--no-config", "--quiet"]
    subprocess.run([*uv, "venv", "--no-python-downloads", "--python", base, str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    # the wheel, not an editable installation: what users get
    subprocess.run([*uv, "pip", "install", "--python", str(python), str(REPOSITORY)], check=True, cwd=folder)
    return python


@pytest.fixture(scope="module")
def lab(python312: Path) -> Iterator[Lab]:
    with Lab(str(python312)) as started:
        yield started


@pytest.fixture
def model_url() -> str:
    """Return the base URL of the model; nothing answers there, which an environment without one does not notice."""
    return "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("name", ARTIFACTS)
def test_recorded_artifact_gives_the_recorded_outcomes(lab: Lab, tmp_path: Path, model_url: str, name: str) -> None:
    script = f"""
import pathlib
from benchmax.bundle import Bundle, BundleMetadata, bundle_digest, load_bundle
folder = pathlib.Path({str(FIXTURES / "bundles" / name)!r})
metadata = BundleMetadata.from_json_bytes((folder / "env-metadata.json").read_bytes())
bundle = Bundle((folder / "env-cls.pkl").read_bytes(), metadata)
env = load_bundle(bundle)
result = [bundle_digest(bundle), asyncio.run(outcomes_of(env, {str(FIXTURES / "data")!r}, {model_url!r}))]
"""
    assert lab.run(RUN_GROUPS + script, cwd=tmp_path) == [EXPECTED[name]["digest"], EXPECTED[name]["outcomes"]]


@pytest.mark.parametrize("name", ARTIFACTS)
def test_dumped_from_the_same_source_it_gives_the_same_outcomes(
    lab: Lab, tmp_path: Path, model_url: str, name: str
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "pyproject.toml").write_text("")
    shutil.copy(FIXTURES / "helper_mod.py", project)
    # the other environments of this module are defined after the line that begins their part
    source = (FIXTURES / "envs_vec.py").read_text()
    if name == "plain":
        source = source.replace(next(line for line in source.splitlines(True) if "benchmax.rewards" in line), "")
        source = (
            source[: source.index("class Tools")] + "ARGS = {'plain': (Plain, {'scale': 0.5, 'where': 'here'}, [])}\n"
        )
    (project / "envs_vec.py").write_text(source)
    dump = f"""
import pickle
from benchmax.bundle import dump_bundle
import envs_vec
env_class, arguments, dependencies = envs_vec.ARGS[{name!r}]
bundle = dump_bundle(env_class, constructor_args=arguments, pip_dependencies=dependencies)
with open({str(elsewhere / "bundle.pkl")!r}, "wb") as file:
    pickle.dump(bundle, file)
"""
    lab.run(dump, cwd=project, path=[project])
    load = f"""
import pickle
from benchmax.bundle import load_bundle
with open({str(elsewhere / "bundle.pkl")!r}, "rb") as file:
    env = load_bundle(pickle.load(file))
result = asyncio.run(outcomes_of(env, {str(FIXTURES / "data")!r}, {model_url!r}))
"""
    assert lab.run(RUN_GROUPS + load, cwd=elsewhere) == EXPECTED[name]["outcomes"]
