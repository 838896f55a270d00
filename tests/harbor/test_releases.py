"""The tests in `inside/` pass with the oldest and with the newest release of Harbor that the extra admits.

Harbor needs Python 3.12, so they run in venvs that our own provisioning makes, with our own package in them.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmax.bundle import BundleMetadata
from runner import InterpreterNotFoundError
from runner.provision import Cache, Venv, provision
from runner.provision.interpreter import find_interpreter
from runner.provision.wheel import own_version
from tests.conftest import require
from tests.integration.conftest import shared_cache as shared_cache

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).parent / "inside"
SERIES = "3.12"
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
PATIENCE_S = 300
"""Where Harbor was never compiled before, loading it takes most of the time."""


def harbor_of_the_extra() -> Requirement:
    """What our package says of Harbor."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [line] = project["optional-dependencies"]["harbor"]
    return Requirement(line)


def releases() -> dict[str, str]:
    """The requirements that give the oldest and the newest release of the extra, the latter as bundles ask for it."""
    [least] = [part.version for part in harbor_of_the_extra().specifier if part.operator == ">="]
    return {"oldest": f"harbor=={least}.*", "newest": "benchmax[harbor]"}


def requirements_for(release: str) -> list[str]:
    """What all tests with a release install, so that they share one venv and what is compiled in it."""
    return [releases()[release], *TOOLS]


async def venv_with(release: str, cache: Cache) -> Venv:
    try:
        await find_interpreter(SERIES, python=None, cache=cache)
    except InterpreterNotFoundError:
        require(None, f"Python {SERIES}")
    metadata = BundleMetadata(
        pip_dependencies=tuple(requirements_for(release)),
        python_version=SERIES,
        benchmax_version=own_version(),
        env_class_source=None,
    )
    return await provision(metadata, cache=cache)


@pytest.mark.parametrize("release", ["oldest", "newest"])
async def test_everything_works_with_this_release_of_harbor(release: str, shared_cache: Path, tmp_path: Path) -> None:
    venv = await venv_with(release, Cache(shared_cache))
    arguments = ["-c", str(INSIDE / "pytest.ini"), f"--rootdir={INSIDE}", f"--confcutdir={INSIDE}", "-q", str(INSIDE)]
    finished = subprocess.run(
        [venv.python, "-P", "-m", "pytest", *arguments],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            # a venv of the cache stays as it is; workers' starts in it have had its modules compiled
            "PYTHONDONTWRITEBYTECODE": "1",
            # a library of Harbor fetches a list of prices when it is loaded
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    if finished.returncode != 0:
        pytest.fail(f"with Harbor {venv.packages['harbor']}:\n{finished.stdout}", pytrace=False)
