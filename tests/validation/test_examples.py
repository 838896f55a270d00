"""The examples of this repository are valid, in the sandbox that a validation takes by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import Bundle, dump_bundle
from runner import Binding
from runner.artifact import Artifact
from runner.models import SampleAuth, mock_command, parse_model
from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.sandbox import probe
from runner.validation import ValidationPlan, Verdict, validate
from tests.conftest import require
from tests.integration.example_environment import EXAMPLES, load_example
from tests.integration.model_process import RunningModel, running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def network_of_its_own() -> None:
    blocker = probe.network_blocker()
    require(blocker is None, f"a network of its own ({blocker})")


def dumped(name: str, environment: str, **arguments: object) -> Bundle:
    module = load_example(name)
    return dump_bundle(getattr(module, environment), constructor_args=arguments, local_modules=[module])


async def packed(cache: Cache, folder: Path, target: str, requirement: str, **arguments: object) -> Artifact:
    request = PackRequest(target=f"{EXAMPLES / target}", requirements=[requirement], arguments=arguments, verify=False)
    return await pack(request, folder, cache=cache)


def check(verdict: Verdict, *warnings: str) -> None:
    told = "\n".join(map(str, verdict.findings))
    assert [finding.code for finding in verdict.findings] == [*warnings], told
    assert verdict.ok
    assert verdict.exit_code == 0
    assert verdict.sandbox is not None
    assert (verdict.sandbox.level, verdict.sandbox.network) == ("namespaces", "model-only")
    assert [outcome.ok for outcome in verdict.siblings] == [True, True]


async def test_the_calculator_is_valid_without_a_warning(shared_cache: Path) -> None:
    plan = ValidationPlan(data=EXAMPLES / "calculator")
    check(await validate(dumped("calculator", "Calculator"), plan, cache=Cache(shared_cache)))


def scripted(model: RunningModel, data: str, **options: Any) -> ValidationPlan:
    return ValidationPlan(
        model=parse_model("mock", base_url=model.base_url), model_auth=SampleAuth(), data=EXAMPLES / data, **options
    )


@pytest.mark.parametrize(
    ("name", "environment", "warnings"),
    [
        ("guessing", "Guessing", []),
        ("maze", "Maze", []),
    ],
)
async def test_an_example_is_valid_with_its_own_script(
    name: str, environment: str, warnings: list[str], shared_cache: Path, tmp_path: Path
) -> None:
    with running(mock_command(EXAMPLES / name / "mock.json"), tmp_path / "log") as model:
        verdict = await validate(dumped(name, environment), scripted(model, name), cache=Cache(shared_cache))
    check(verdict, *warnings)


def bound(model: RunningModel, *names: str) -> dict[str, Binding]:
    return {name: Binding(StaticBearerAuth("any-key"), urls=[model.base_url]) for name in names}


async def test_an_example_with_a_judge_is_valid_and_its_outage_was_tried(shared_cache: Path, tmp_path: Path) -> None:
    with running(mock_command(EXAMPLES / "judged" / "mock.json"), tmp_path / "log") as model:
        bundle = dumped("judged", "Judged", judge_model="judge", judge_url=model.base_url)
        plan = scripted(model, "judged", auth=bound(model, "judge"))
        verdict = await validate(bundle, plan, cache=Cache(shared_cache))
    check(verdict, "single-call")
    assert verdict.check("judge outage").state == "passed"


@pytest.mark.slow
async def test_an_example_with_retrieval_is_valid(shared_cache: Path, tmp_path: Path) -> None:
    cache = Cache(shared_cache)
    with running(mock_command(EXAMPLES / "rag" / "mock.json"), tmp_path / "log") as model:
        urls = {"judge_base_url": model.base_url, "embedding_base_url": model.base_url}
        artifact = await packed(cache, tmp_path / "artifact", "rag/rag.py:Moons", "bm25s", **urls)
        plan = scripted(model, "rag", auth=bound(model, "judge", "embedding"))
        verdict = await validate(artifact, plan, cache=cache)
    check(verdict)
    assert verdict.check("judge outage").state == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "requirement", "warnings"),
    [
        ("reasoning/reasoning.py:Reasoning", "sympy", ["single-call"]),
        ("conflict/tables.py:Tables", "tabulate==0.9.0", ["single-call", "constant-reward"]),
    ],
)
async def test_an_example_with_packages_of_its_own_is_valid(
    target: str, requirement: str, warnings: list[str], shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await packed(cache, tmp_path / "artifact", target, requirement)
    check(await validate(artifact, ValidationPlan(data=EXAMPLES), cache=cache), *warnings)
