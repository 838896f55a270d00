"""Bundles travel both ways: recorded artifacts run here, ours load in the published release, and it runs in our child.

The published release is installed into a venv of its own and only ever driven from outside.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutOutcome
from runner import Artifact, InterpreterNotFoundError, isolate, read_artifact
from runner.models import mock_command
from runner.packing import PackRequest, metadata_for, pack
from runner.provision import Cache, Venv, provision, provision_packages
from runner.provision.interpreter import find_interpreter
from tests.conftest import require
from tests.contract.loopback import ModelServer, running_server
from tests.contract.vector_model import scripted
from tests.integration.example_environment import EXAMPLES, run_groups
from tests.integration.isolation import requests_for
from tests.integration.model_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "contract"
EXPECTED = json.loads((FIXTURES / "bundles" / "expected.json").read_text())
ARTIFACTS = sorted(EXPECTED)

PUBLISHED = ["benchmax==0.2.5", "openai<3"]
"""It does not import beside openai 3, which no longer brings the HTTP library it uses."""

RUN = """
import asyncio, json, pathlib, sys
from benchmax.auth import StaticBearerAuth
from benchmax.bundle import Bundle, BundleMetadata, bundle_digest, load_bundle
from benchmax.envs import RolloutRequest

async def main(artifact, base_url, data):
    files = pathlib.Path(artifact)
    metadata = BundleMetadata.from_json_bytes((files / "env-metadata.json").read_bytes())
    bundle = Bundle((files / "env-cls.pkl").read_bytes(), metadata)
    env = load_bundle(bundle)
    found = {}
    for example in await env.create_dataset("eval", pathlib.Path(data)):
        requests = [
            RolloutRequest(f"r-{k}", example, "m", base_url, StaticBearerAuth("vector-key"), "eval") for k in range(3)
        ]
        group = await env.run_group(requests)
        found[example.id] = [[dict(o.rewards), o.termination_reason, o.error] for o in group.values()]
    print(json.dumps([bundle_digest(bundle), found]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest_asyncio.fixture
async def cache(shared_cache: Path) -> AsyncIterator[Cache]:
    """The session's cache, where there is a Python 3.12: the recorded artifacts are of that series."""
    found = Cache(shared_cache)
    try:
        await find_interpreter("3.12", python=None, cache=found)
    except InterpreterNotFoundError:
        require(None, "Python 3.12")
    yield found


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """The server that the recorded environments expect: it answers by the first word of the first message."""
    with running_server() as server:
        server.answer = scripted
        yield server


def recorded(outcomes: dict[str, RolloutOutcome]) -> dict[str, Any]:
    """Outcomes in the form in which the recorded ones are kept."""
    return {
        f"r{number}": {
            "has_error": outcome.error is not None,
            "rewards": dict(outcome.rewards),
            "termination_reason": outcome.termination_reason,
        }
        for number, outcome in enumerate(outcomes.values())
    }


async def isolated_outcomes(artifact: Artifact, cache: Cache, base_url: str) -> dict[str, dict[str, RolloutOutcome]]:
    """The outcomes of a group of three for every example, isolated."""
    auth = StaticBearerAuth("vector-key")
    async with isolate(artifact, cache=cache) as env:
        dataset = await env.create_dataset("eval", FIXTURES / "data")
        return {
            example.id: dict(await env.run_group(requests_for(example, 3, auth=auth, base_url=base_url)))
            for example in dataset
        }


def outcomes_in(venv: Venv, artifact: Path, base_url: str, data: Path) -> tuple[str, Any]:
    """The digest and outcomes that the benchmax of another venv gives for an artifact."""
    command = [str(venv.python), "-P", "-c", RUN, str(artifact), base_url, str(data)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    digest, found = json.loads(finished.stdout)
    return digest, found


@pytest.mark.parametrize("name", ARTIFACTS)
async def test_a_recorded_artifact_gives_its_recorded_outcomes_isolated(
    cache: Cache, model: ModelServer, name: str
) -> None:
    artifact = read_artifact(FIXTURES / "bundles" / name)
    assert artifact.digest == EXPECTED[name]["digest"]
    outcomes = await isolated_outcomes(artifact, cache, model.url)
    assert {example: recorded(group) for example, group in outcomes.items()} == EXPECTED[name]["outcomes"]


@pytest.mark.parametrize("name", ARTIFACTS)
async def test_an_artifact_of_ours_gives_the_same_outcomes_in_the_published_release(
    cache: Cache, model: ModelServer, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    shutil.copy(FIXTURES / "helper_mod.py", folder)
    source = (FIXTURES / "envs_vec.py").read_text()
    # bound to its recorded constructor arguments, since instances cannot be given on a command line
    source += f"\n\nCLASS, ARGUMENTS, DEPENDENCIES = ARGS[{name!r}]\n"
    (folder / "envs_vec.py").write_text(source)
    ours = await provision(metadata_for([], "3.12"), cache=cache)
    dump = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import envs_vec\n"
        "from benchmax.bundle import dump_bundle\n"
        "bundle = dump_bundle(envs_vec.CLASS, constructor_args=envs_vec.ARGUMENTS,"
        " pip_dependencies=envs_vec.DEPENDENCIES)\n"
        "out = pathlib.Path(sys.argv[2]); out.mkdir()\n"
        "(out / 'env-cls.pkl').write_bytes(bundle.pickled)\n"
        "(out / 'env-metadata.json').write_bytes(bundle.metadata.to_json_bytes())\n"
    )
    artifact = tmp_path / "artifact"
    subprocess.run([ours.python, "-P", "-c", dump, str(folder), str(artifact)], check=True, cwd=folder)
    published = await provision_packages([*PUBLISHED, "tabulate"], python_series="3.12", cache=cache)
    assert published.packages["benchmax"] == "0.2.5"
    digest, found = outcomes_in(published, artifact, model.url, FIXTURES / "data")
    assert digest == read_artifact(artifact).digest
    shapes = {
        example: {
            f"r{number}": {"has_error": error is not None, "rewards": rewards, "termination_reason": reason}
            for number, (rewards, reason, error) in enumerate(group)
        }
        for example, group in found.items()
    }
    assert shapes == EXPECTED[name]["outcomes"]


async def test_a_bundle_that_pins_the_published_release_is_made_and_run_by_it(cache: Cache, tmp_path: Path) -> None:
    folder = EXAMPLES / "calculator"
    target = f"{folder / 'calculator.py'}:Calculator"
    results = []
    for number, requirements in enumerate([PUBLISHED, []]):
        request = PackRequest(target=target, requirements=requirements, python="3.12")
        artifact = await pack(request, tmp_path / f"artifact{number}", cache=cache)
        async with isolate(artifact, cache=cache) as env:
            with running(mock_command(folder / "mock.json"), tmp_path / f"stderr{number}") as model:
                results.append(await run_groups(env, model, folder, split="eval", examples=3, group_size=6))
            assert env.venv.packages["benchmax"] == ("0.2.5" if requirements else "0.2.6")
            assert artifact.bundle.metadata.benchmax_version == env.venv.packages["benchmax"]
    assert results[0] == results[1]
