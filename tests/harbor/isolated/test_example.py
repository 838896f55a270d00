"""examples/harbor, isolated with a scripted model, and in a process without a worker."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from runner import isolate
from runner.cli.parser import parse_arguments
from runner.models import mock_command
from runner.provision import Cache
from runner.provision.lock import markers
from runner.provision.wheel import own_extra
from runner.record import Event, RecordEvent, RolloutRecord
from tests.harbor.isolated.harbor_lab import EXAMPLE, RELEASES, packed
from tests.harbor.test_releases import SERIES, harbor_of_the_extra, venv_with
from tests.integration.example_environment import run_groups
from tests.integration.model_process import running

TARGET = f"{EXAMPLE / 'shell.py'}:Shell"
PARTS = {("hidden_file", "largest_file", "twice"), ("customers", "form", "order"), ("median", "most_common", "spread")}


def parts(rewards: dict[str, float]) -> tuple[str, ...]:
    return tuple(sorted(rewards.keys() - {"reward", "partial_credit"}))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("release", RELEASES)
async def test_an_agent_in_the_bundle_works_in_sandboxes_and_is_graded_in_parts(
    release: str, shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await packed(TARGET, release, tmp_path / "artifact", cache)
    records: dict[str, RolloutRecord] = {}

    def on_event(event: Event) -> None:
        if isinstance(event, RecordEvent):
            records[event.record.rollout_id] = event.record

    with running(mock_command(EXAMPLE / "mock.json"), tmp_path / "stderr") as model:
        async with isolate(
            artifact,
            cache=cache,
            sandbox="namespaces",
            network="model-only",
            credentials="gateway",
            endpoints=[model.base_url],
            on_event=on_event,
        ) as env:
            groups = await run_groups(env, model, EXAMPLE, split="eval", examples=3, group_size=4)
    assert {parts(dict(next(iter(group.values())).rewards)) for group in groups} == PARTS
    for group in groups:
        right, partly, other, idle = group.values()
        assert [outcome.error for outcome in group.values()] == [None] * 4
        assert set(right.rewards.values()) == {1.0}
        assert 0 < partly.rewards["reward"] < 1
        assert set(idle.rewards.values()) == {0.0}
        lost = "twice" in other.rewards
        assert (other.termination_reason, other.rewards["reward"]) == (
            ("max_turns_exceeded", 0.0) if lost else ("finished", 1.0)
        )
    # what the page of the run shows of one of them
    (record,) = (
        record for name, record in records.items() if name.endswith("-1") and "twice" in record.outcome.rewards
    )
    logged = [line.text for line in record.logs]
    assert any(
        re.match(r"\$ find house .*\n.*\n\[root, exit 0, \d+\.\d\d s\]\n7 house/kitchen", text) for text in logged
    )
    assert any(text.startswith("/logs/verifier/test-stdout.txt:\nlargest_file: right") for text in logged)
    assert any("harbor.rewardkit.misses" in text and "word 3 of the key" in text for text in logged)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_in_a_process_without_a_worker_the_solutions_get_full_marks_and_doing_nothing_gets_none(
    shared_cache: Path, tmp_path: Path
) -> None:
    # nothing on this way is another one with another release
    venv = await venv_with("newest", Cache(shared_cache))
    program = Path(__file__).parent / "environments" / "in_process.py"
    finished = subprocess.run(
        [venv.python, "-P", program, EXAMPLE, "oracle", "nop"],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            # of what is installed in a venv for workers, the runner is no part
            "PYTHONPATH": str(EXAMPLE.parents[1]),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert {parts(rewards) for _, _, rewards in found["oracle"]} == PARTS
    for agent, value in (("oracle", 1.0), ("nop", 0.0)):
        for reason, error, rewards in found[agent]:
            assert (reason, error, set(rewards.values())) == ("finished", None, {value})


def commands(text: str, start: str) -> list[list[str]]:
    lines = re.findall(rf"^{start}(\S.*)$", text.replace("\\\n", " "), flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_the_page_shows_the_commands_of_the_docstring_and_they_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLE / "shell.py").read_text())) or ""
    shown = commands(docstring, " {4}")
    assert commands((EXAMPLE / "README.md").read_text(), r"\$ ") == shown
    monkeypatch.chdir(EXAMPLE.parents[1])
    for program, *arguments in shown:
        assert program == "benchmax"
        assert parse_arguments(arguments).command == arguments[0]
        for path in re.findall(r"examples/[\w./]+", " ".join(arguments)):
            assert Path(path).exists(), path


def test_the_bundle_asks_for_what_the_library_says_that_it_needs() -> None:
    (asked,) = re.findall(r"--pip '(.*)'", (EXAMPLE / "README.md").read_text())
    assert Requirement(asked).extras == {"harbor"}
    (brought,) = own_extra("harbor", markers(SERIES))
    assert Requirement(brought).specifier == harbor_of_the_extra().specifier
