"""Recorded artifacts that hold judges, rubrics and diversity settings load here and give the recorded outcomes.

They were made by Python 3.12, and only that reads their code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, StaticBearerAuth
from benchmax.bundle import Bundle, BundleMetadata, bundle_digest, load_bundle
from benchmax.envs import RolloutRequest
from benchmax.rewards import Judge, NgramDiversityConfig, Rubric
from tests.contract.loopback import ModelServer
from tests.contract.vector_model import scripted

FIXTURES = Path(__file__).parents[1] / "fixtures" / "contract"
EXPECTED = json.loads((FIXTURES / "bundles" / "expected.json").read_text())

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="needs Python 3.12")


def load(name: str) -> Bundle:
    folder = FIXTURES / "bundles" / name
    metadata = BundleMetadata.from_json_bytes((folder / "env-metadata.json").read_bytes())
    return Bundle((folder / "env-cls.pkl").read_bytes(), metadata)


def test_a_recorded_judge_and_its_rubrics_are_read_field_by_field() -> None:
    env: Any = load_bundle(load("tools"))
    assert env.judge == Judge("m", "http://judge.example/v1", InjectedAuth("judge"), timeout=5, max_retries=1)
    assert env.rubrics == (
        Rubric("clear", "it is clear"),
        Rubric("wrong", "it is wrong", polarity="negative", score_map={0: "no", 2: "some", 5: "much"}),
    )
    assert env.diversity == NgramDiversityConfig(n=2, similarity_threshold=0.4)
    assert env.rubrics[1].reward_for(2) == pytest.approx(0.6)


def test_a_recorded_static_token_is_read() -> None:
    env: Any = load_bundle(load("static"))
    assert env.judge == Judge("m", "http://judge.example/v1", StaticBearerAuth("vector-token"))
    assert env.diversity == NgramDiversityConfig()


@pytest.mark.parametrize("name", ["tools", "static"])
async def test_a_recorded_artifact_gives_the_recorded_outcomes(model_server: ModelServer, name: str) -> None:
    model_server.answer = scripted
    bundle = load(name)
    assert bundle_digest(bundle) == EXPECTED[name]["digest"]
    env = load_bundle(bundle)
    found = {}
    for example in await env.create_dataset("eval", FIXTURES / "data"):
        requests = [
            RolloutRequest(f"r{number}", example, "m", model_server.url, StaticBearerAuth("t"), "eval")
            for number in range(3)
        ]
        found[example.id] = {
            rollout_id: {
                "has_error": outcome.error is not None,
                "rewards": dict(outcome.rewards),
                "termination_reason": outcome.termination_reason,
            }
            for rollout_id, outcome in (await env.run_group(requests)).items()
        }
    assert found == EXPECTED[name]["outcomes"]
