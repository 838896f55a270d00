"""Examples recorded with the real local model, and replayed where there is no network at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.sandbox import probe
from tests.conftest import require
from tests.integration.command_line import PROGRAM, CommandLine
from tests.integration.example_environment import EXAMPLES

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


@pytest.mark.parametrize(
    ("example", "requirements", "data"),
    [("calculator:Calculator", [], EXAMPLES / "calculator"), ("reasoning:Reasoning", ["sympy"], None)],
)
async def test_what_the_local_model_answered_is_answered_again_without_any_network(
    benchmax: CommandLine, example: str, requirements: list[str], data: Path | None
) -> None:
    require(os.geteuid() == 0 and shutil.which("unshare"), "root, and unshare")
    require(probe.network_blocker() is None, "a network of its own")
    name, _, target = example.partition(":")
    (benchmax.cwd / "data").mkdir()
    request = PackRequest(target=f"{EXAMPLES / name / name}.py:{target}", requirements=requirements)
    await pack(request, benchmax.cwd / "artifact", cache=Cache(benchmax.cache))
    options = ("--data", str(data or "data"), "--max-examples", "1", "--group-size", "2", "--network", "model-only")
    record = ran(benchmax, str(PROGRAM), "run", "artifact", *options, "--model", "local", "--record", "out")
    assert record.returncode in (0, 1), record.stderr
    # nothing in there but a loopback interface, and that is down
    alone = ("unshare", "--net", str(PROGRAM), "run", "--replay", "out", "--json-out", "replay.json")
    replay = ran(benchmax, *alone)
    assert replay.returncode == record.returncode, replay.stderr
    assert "replay: 2 of 2 outcomes are as recorded" in replay.stdout
    assert outcomes(benchmax.cwd / "replay.json") == outcomes(benchmax.cwd / "out" / "report.json")
    assert benchmax("diff", "out", "replay.json").good() == "equal: 2 rollouts compared\n"


def ran(benchmax: CommandLine, *command: str) -> subprocess.CompletedProcess[str]:
    # a model that computes takes as long as others leave it
    environment = benchmax.environment()
    return subprocess.run(command, cwd=benchmax.cwd, env=environment, capture_output=True, text=True, timeout=300)


def outcomes(path: Path) -> list[dict[str, Any]]:
    kept = ("rollout_id", "rewards", "termination_reason", "error", "transcript")
    groups = json.loads(path.read_bytes())["groups"]
    return [{name: outcome[name] for name in kept} for group in groups for outcome in group["outcomes"]]
