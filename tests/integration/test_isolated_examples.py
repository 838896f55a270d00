"""Each example gives the same outcomes isolated as in one process, and runs with the real local model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner import isolate
from runner.models import mock_command, parse_model
from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.run import Run, RunPlan
from tests.integration.example_environment import EXAMPLES, run_groups
from tests.integration.model_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

IN_PROCESS = """
import asyncio, json, pathlib, sys
from benchmax.bundle import Bundle, BundleMetadata, load_bundle
from benchmax.envs import RolloutRequest

class Sample:
    async def headers_for_request(self, context):
        return {"X-Benchmax-Sample": context.rollout_id.rpartition("-")[2]}

async def main(artifact, base_url, data):
    files = pathlib.Path(artifact)
    metadata = BundleMetadata.from_json_bytes((files / "env-metadata.json").read_bytes())
    env = load_bundle(Bundle((files / "env-cls.pkl").read_bytes(), metadata))
    dataset = await env.create_dataset("eval", pathlib.Path(data), max_examples=3)
    found = []
    for position, example in enumerate(dataset):
        requests = [
            RolloutRequest(f"{position}-{example.id[:8]}-{k}", example, "mock", base_url, Sample(), "eval")
            for k in range(6)
        ]
        outcomes = await env.run_group(requests)
        found.append({i: [dict(o.rewards), o.termination_reason, o.error] for i, o in outcomes.items()})
    print(json.dumps(found))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("name", "class_name", "requirements", "script"),
    [("reasoning", "Reasoning", ["sympy"], None), ("calculator", "Calculator", [], "mock.json")],
)
async def test_an_example_gives_equal_outcomes_isolated_and_in_one_process(
    shared_cache: Path, tmp_path: Path, name: str, class_name: str, requirements: list[str], script: str | None
) -> None:
    cache, folder = Cache(shared_cache), EXAMPLES / name
    request = PackRequest(target=f"{folder / name}.py:{class_name}", requirements=requirements)
    artifact = await pack(request, tmp_path / "artifact", cache=cache)
    command = mock_command(None if script is None else folder / script)
    async with isolate(artifact, cache=cache) as env:
        with running(command, tmp_path / "isolated") as model:
            groups = await run_groups(env, model, folder, split="eval", examples=3, group_size=6)
        isolated: list[dict[str, list[Any]]] = [
            {i: [dict(o.rewards), o.termination_reason, o.error] for i, o in g.items()} for g in groups
        ]
        with running(command, tmp_path / "in-process") as model:
            # in the bundle's own venv, since this one does not have its packages
            arguments = [str(tmp_path / "artifact"), model.base_url, str(folder)]
            finished = subprocess.run(
                [env.venv.python, "-P", "-c", IN_PROCESS, *arguments], check=True, capture_output=True, text=True
            )
    assert isolated == json.loads(finished.stdout)
    assert any(outcome[0].get("correct") for group in isolated for outcome in group.values())


async def test_reasoning_runs_isolated_with_the_real_local_model(shared_cache: Path, tmp_path: Path) -> None:
    cache = Cache(shared_cache)
    request = PackRequest(target=f"{EXAMPLES / 'reasoning' / 'reasoning.py'}:Reasoning", requirements=["sympy"])
    artifact = await pack(request, tmp_path / "artifact", cache=cache)
    events: list[Any] = []
    plan = RunPlan(model=parse_model("local", base_url=None), data=tmp_path, max_examples=2, group_size=2)
    report = await Run(artifact, plan, cache=cache, on_event=events.append).run()
    assert (report.ok, report.expected) == (4, 4)
    assert all(outcome.transcript and outcome.transcript[-1]["content"] for outcome in report.outcomes)
    assert {"correct", "formatted", "agreement"} == set(report.components())
    assert "sympy" in report.venv.packages
