"""`benchmax run` with a network of its own, and with secrets."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from runner.artifact import write_artifact
from runner.sandbox import probe
from tests.conftest import require
from tests.integration.command_line import CommandLine, Finished
from tests.integration.environments import calling, mediated
from tests.integration.isolation import bundled

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def run(benchmax: CommandLine, *options: str, acts: list[str], env: dict[str, str] | None = None) -> Finished:
    write_artifact(bundled(calling, "Calling", acts=acts), benchmax.cwd / "artifact")
    options = ("--group-size", "1", "--json", "--credentials", "headers", *options)
    return benchmax("run", "artifact", *options, env=env)


def said(finished: Finished) -> list[Any]:
    groups = json.loads(finished.out)["groups"]
    return [json.loads(outcome["error"]) for group in groups for outcome in group["outcomes"]]


def test_with_model_only_the_models_own_server_can_be_reached_and_nothing_else(benchmax: CommandLine) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        finished = run(benchmax, "--network", "model-only", acts=["ask", f"connect 127.0.0.1 {port}"])
    answer, refused = said(finished)
    assert isinstance(answer, str)
    assert refused[0] == "ConnectionRefusedError"
    report = json.loads(finished.out)
    sandbox, address = report["sandbox"], report["model"]["base_url"].removeprefix("http://").removesuffix("/v1")
    assert (sandbox["level"], sandbox["network"]) == ("namespaces", "model-only")
    assert "network namespace" in sandbox["mechanisms"]
    assert sandbox["endpoints"] == [{"endpoint": address, "connections": 1, "failed": 0, "reason": ""}]
    assert "sandbox: namespaces (network model-only)" in finished.err


def test_with_model_only_models_are_asked_by_the_gateway_unless_it_is_said_otherwise(benchmax: CommandLine) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    write_artifact(bundled(mediated, "Mediated", acts=["ask"]), benchmax.cwd / "artifact")
    options = ["--group-size", "1", "--json", "--network", "model-only", "--model", "mock"]
    report = json.loads(benchmax("run", "artifact", *options).out)
    ((outcome,),) = [group["outcomes"] for group in report["groups"]]
    assert isinstance(json.loads(outcome["error"]), str)
    (place,) = report["sandbox"]["endpoints"]
    assert (place["endpoint"], place["connections"], place["failed"]) == ("benchmax-gateway:80", 1, 0)


def test_a_place_that_is_allowed_and_does_not_answer_is_named_below_the_table(benchmax: CommandLine) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    options = ["--network", "model-only", "--allow", f"localhost:{port}"]
    finished = run(benchmax, *options, acts=[f"connect localhost {port}"])
    assert said(finished)[0][0] == "ConnectionResetError"
    # while it runs, and in the end
    assert f"] cannot connect to localhost:{port}: Connection refused\n" in finished.err
    assert f"\ncannot connect to localhost:{port}: Connection refused (1 times)\n" in finished.err


def test_a_secret_is_in_the_report_by_its_name_alone(benchmax: CommandLine) -> None:
    value = "postgres://me:hunter2secret@db.example/x"
    options = ["--secret", "DATABASE_URL=env:OUTSIDE", "--show-output"]
    finished = run(benchmax, *options, acts=["variable DATABASE_URL"], env={"OUTSIDE": value})
    assert said(finished) == [{"length": len(value), "value": "[redacted]", "backwards": value[::-1]}]
    assert json.loads(finished.out)["sandbox"]["secrets"] == ["DATABASE_URL"]
    assert "printed: [redacted]" in finished.err
    assert "hunter2" not in finished.out + finished.err
