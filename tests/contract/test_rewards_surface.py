"""Names, where they are defined, and what importing them loads."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from types import UnionType
from typing import get_args

import pytest

import benchmax.rewards

HEAVY = {"openai", "httpx", "httpx2", "httpcore", "httpcore2", "pydantic", "anyio", "cloudpickle", "benchmax.transport"}

DEFINED = {
    "deterministic": "Completion citation_score clip01 count_search_calls extract_answer_block extract_completion_text "
    "overlap_reward percent_of_text_a_in_text_b search_within_budget tool_call_efficiency",
    "judge": "Judge JudgeError",
    "rubric": "RankingAnchor Rubric RubricEvaluation RubricPolarity RubricRanking evaluate_rubric_ranking "
    "evaluate_single_rubric",
    "scoring": "rank_group_rubrics rubric_reward_key score_group_rubrics score_rubrics",
    "adaptive": "AdaptiveRubrics RubricCache generate_adaptive_rubrics generate_and_cache_adaptive_rubrics",
    "diversity": "ClusterResult DiversityConfig LLMDiversityConfig NgramDiversityConfig cluster_texts "
    "scale_by_diversity",
}


def test_the_exports_are_these() -> None:
    assert sorted(" ".join(DEFINED.values()).split()) == sorted(benchmax.rewards.__all__)
    assert len(benchmax.rewards.__all__) == 33


@pytest.mark.parametrize("module", DEFINED)
def test_names_are_defined_by_the_modules_that_pickles_refer_to(module: str) -> None:
    defining = importlib.import_module(f"benchmax.rewards.{module}")
    names = DEFINED[module].split()
    assert set(names) <= set(defining.__all__)
    for name in names:
        value = getattr(defining, name)
        assert getattr(benchmax.rewards, name) is value
        if name not in ("Completion", "DiversityConfig", "RubricPolarity"):
            assert (value.__module__, value.__qualname__) == (defining.__name__, name)
            assert pickle.loads(pickle.dumps(value)) is value


def test_the_aliases_are_unions_and_literals() -> None:
    assert get_args(benchmax.rewards.RubricPolarity) == ("positive", "negative")
    union = benchmax.rewards.DiversityConfig
    assert isinstance(union, UnionType)
    assert get_args(union) == (benchmax.rewards.NgramDiversityConfig, benchmax.rewards.LLMDiversityConfig)
    assert get_args(benchmax.rewards.Completion)[0] is str


def test_importing_and_constructing_load_neither_openai_nor_an_http_library() -> None:
    code = """
import sys
import benchmax.rewards.prompts
from benchmax.rewards import *
from benchmax.auth import InjectedAuth
LLMDiversityConfig(Judge("m", "http://x", InjectedAuth("judge"))), Rubric("t", "d"), RubricCache()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & HEAVY


def test_the_sdk_class_is_a_name_of_the_judges_module() -> None:
    code = """
import sys
from benchmax.rewards import judge
assert "openai" not in sys.modules
from benchmax.rewards.judge import AsyncOpenAI
import openai
assert AsyncOpenAI is openai.AsyncOpenAI is judge.AsyncOpenAI
"""
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_an_unknown_name_of_the_judges_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = benchmax.rewards.judge.Nothing


RESULTS = ["RubricEvaluation", "RubricRanking", "AdaptiveRubrics", "ClusterResult"]


@pytest.mark.parametrize("name", [*RESULTS, "Judge", "Rubric", "RankingAnchor", "NgramDiversityConfig"])
def test_value_types_are_frozen_and_slotted(name: str) -> None:
    value_type = getattr(benchmax.rewards, name)
    assert value_type.__dataclass_params__.frozen
    assert "__slots__" in vars(value_type)
    assert "__dict__" not in dir(value_type)
