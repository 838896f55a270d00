"""examples/judged, run with a scripted judge in this process and isolated."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth, bind_model_auth
from benchmax.envs import BaseEnv, RolloutOutcome
from runner import Binding, isolate
from runner.models import mock_command
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.model_process import running

FOLDER = EXAMPLES / "judged"
MOCK = mock_command(FOLDER / "mock.json")
KEYS = ["rubric_clearest", "rubric_correct", "rubric_plain_words", "rubric_talks_down"]


@pytest.fixture(scope="module")
def judged() -> ModuleType:
    return load_example("judged")


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judged_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_line_of_the_data_has_a_question_and_a_reference(split: str) -> None:
    rows = [json.loads(line) for line in (FOLDER / f"{split}.jsonl").read_text().splitlines()]
    assert len(rows) >= 3
    for row in rows:
        assert set(row) == {"question", "reference"}
        assert row["question"].endswith("?")


async def test_answers_are_scored_and_ranked_and_a_judge_that_fails_costs_one_rollout_its_rewards(
    judged: ModuleType, tmp_path: Path
) -> None:
    with running(MOCK, tmp_path / "stderr") as model, bind_model_auth({"judge": StaticBearerAuth("k")}):
        env: BaseEnv = judged.Judged(judge_model="judge", judge_url=model.base_url)
        groups = await run_groups(env, model, FOLDER, split="eval", examples=3, group_size=4)
    assert len(groups) == 3
    for group in groups:
        plain, learned, wrong, flattering = group.values()
        # the reference is ranked second of four
        assert plain.rewards == dict(zip(KEYS, (1.0, 1.0, 1.0, 1.0), strict=True))
        assert learned.rewards == pytest.approx(dict(zip(KEYS, (0.15, 1.0, 0.0, 1.0), strict=True)))
        assert wrong.rewards == dict(zip(KEYS, (0.0, 0.0, 1.0, 0.0), strict=True))
        assert (flattering.termination_reason, flattering.rewards) == ("judge_error", {})
        assert "valid JSON object" in str(flattering.error)


def without_rubric(group: Mapping[str, RolloutOutcome]) -> dict[str, RolloutOutcome]:
    return {
        rollout_id: replace(
            outcome, error=outcome.error and re.sub(r"(?i)rubric(:| ')[\w -]+", "rubric", outcome.error)
        )
        for rollout_id, outcome in group.items()
    }


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_it_gives_equal_outcomes_packed_and_isolated_with_the_key_outside(
    judged: ModuleType, shared_cache: Path, tmp_path: Path
) -> None:
    cache, auth = Cache(shared_cache), StaticBearerAuth("a-key-of-the-judge")
    with running(MOCK, tmp_path / "stderr") as model:
        arguments = {"judge_model": "judge", "judge_url": model.base_url}
        request = PackRequest(target=f"{FOLDER / 'judged.py'}:Judged", arguments=arguments)
        artifact = await pack(request, tmp_path / "artifact", cache=cache)
        with bind_model_auth({"judge": auth}):
            env: BaseEnv = judged.Judged(**arguments)
            here = await run_groups(env, model, FOLDER, split="eval", examples=2, group_size=4)
        binding = Binding(auth, urls=[model.base_url])
        async with isolate(artifact, auth={"judge": binding}, cache=cache) as isolated:
            there = await run_groups(isolated, model, FOLDER, split="eval", examples=2, group_size=4)
            audit = isolated.audit
    # of the rubrics of one answer the judge fails for all, and which is first is for the scheduler to say
    assert [without_rubric(group) for group in there] == [without_rubric(group) for group in here]
    asked = [entry for entry in audit if entry.binding == "judge"]
    # three rubrics of four answers, or fewer where one failed first, and one ranking of each group
    assert all(entry.answered and entry.model == "judge" for entry in asked)
    assert 2 * (3 * 3 + 1 + 1) <= len(asked) <= 2 * (3 * 4 + 1)
    assert b"a-key-of-the-judge" not in b"".join(path.read_bytes() for path in (tmp_path / "artifact").iterdir())


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_its_program_runs_it_with_a_judge_of_its_own(shared_cache: Path) -> None:
    report: Any = await load_program().judged("mock", cache=Cache(shared_cache))
    assert (report.ok, report.expected, report.missing) == (9, 12, 0)
    assert report.reasons() == {"finished": 9, "judge_error": 3}
    assert sorted(report.components()) == KEYS
