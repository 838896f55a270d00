"""Names of the search environments, where they are defined, and what importing them loads."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

import benchmax.rag
import benchmax.rag.env
from benchmax.auth import InjectedAuth
from benchmax.rag import DEFAULT_EMBED_MODEL, OpenAIEmbedder, RagEnv, SearchClient, SearchResult
from tests.contract.rag_lab import Corpus

HEAVY = {"openai", "httpx", "httpx2", "httpcore", "httpcore2", "pydantic", "anyio", "cloudpickle", "benchmax.transport"}

FUNCTIONS = [
    "canonicalize_source_id",
    "canonicalize_source_id_loose",
    "extract_answer_block",
    "extract_reference_ids",
    "extract_source_ids",
    "judge_answer_quality",
    "parse_citations",
    "score_citation_grounding",
    "score_citations",
    "score_rag_sources",
    "score_retrieval_sources",
    "score_search_efficiency",
]
CONSTANTS = [
    "ANSWER_LENGTH_CAP",
    "CONCISENESS_RUBRIC",
    "CORRECTNESS_RUBRIC",
    "MAX_TOOL_OUTPUT_CHARS",
    "SEARCH_EFFICIENCY_DECAY_RATE",
    "TOOL_OUTPUT_TRUNCATION_SUFFIX",
]


def test_the_exports_are_these() -> None:
    assert benchmax.rag.__all__ == ["DEFAULT_EMBED_MODEL", "OpenAIEmbedder", "RagEnv", "SearchClient", "SearchResult"]
    assert set(benchmax.rag.env.__all__) == {*FUNCTIONS, *CONSTANTS, "RagEnv", "RagSourceScores"}


@pytest.mark.parametrize(
    ("value", "module"),
    [(SearchClient, "search"), (SearchResult, "search"), (OpenAIEmbedder, "embed"), (RagEnv, "env")],
)
def test_classes_are_defined_by_the_modules_that_pickles_refer_to(value: Any, module: str) -> None:
    assert value.__module__ == f"benchmax.rag.{module}"
    assert pickle.loads(pickle.dumps(value)) is value


@pytest.mark.parametrize("name", [*FUNCTIONS, "RagSourceScores"])
def test_a_pickle_names_every_free_helper_by_the_module_that_all_releases_have(name: str) -> None:
    helper = getattr(benchmax.rag.env, name)
    dumped = pickle.dumps(helper)
    assert pickle.loads(dumped) is helper
    assert b"benchmax.rag.env" in dumped
    assert b"benchmax.rag.sources" not in dumped


def test_two_names_stand_for_one_function_each() -> None:
    env: Any = benchmax.rag.env
    assert env._extract_answer_block is env.extract_answer_block
    text = "[Source: b] [source: A ]"
    assert env.parse_citations(text) == env.extract_source_ids(text) == {"A", "b"}


def test_constants_have_their_values() -> None:
    env = benchmax.rag.env
    assert (env.ANSWER_LENGTH_CAP, env.MAX_TOOL_OUTPUT_CHARS, env.SEARCH_EFFICIENCY_DECAY_RATE) == (600, 10000, 0.2)
    assert env.TOOL_OUTPUT_TRUNCATION_SUFFIX == "\n...[truncated due to character limit]"
    assert len(env.TOOL_OUTPUT_TRUNCATION_SUFFIX) == 38
    assert DEFAULT_EMBED_MODEL == "text-embedding-3-large"


def test_the_rubrics_are_a_scored_one_for_correctness_and_a_binary_one_for_conciseness() -> None:
    correctness, conciseness = benchmax.rag.env.CORRECTNESS_RUBRIC, benchmax.rag.env.CONCISENESS_RUBRIC
    assert (correctness.title, correctness.polarity) == ("Answer correctness", "positive")
    assert sorted(correctness.score_map or {}) == [0, 1]
    assert (conciseness.title, conciseness.polarity, conciseness.score_map) == ("Answer conciseness", "positive", None)


def test_a_search_result_is_a_plain_dictionary_of_four_fields() -> None:
    result: Any = SearchResult(content="c", source="s", metadata={}, score=0.5)
    assert type(result) is dict
    assert list(get_type_hints(SearchResult)) == ["content", "source", "metadata", "score"]


def test_a_search_client_is_whatever_has_its_two_members() -> None:
    assert isinstance(Corpus(), SearchClient)
    assert not isinstance(object(), SearchClient)


def test_an_environment_does_not_check_the_type_of_its_client() -> None:
    class Unlike:
        available_modes = ("vector",)

    client: Any = Unlike()
    env: Any = RagEnv(client, judge_base_url="http://x", judge_model="m")
    assert (env._search, env._default_mode) == (client, "vector")


@pytest.mark.parametrize("module", ["", ".search", ".embed", ".env"])
def test_importing_and_constructing_load_neither_openai_nor_an_http_library_nor_cloudpickle(module: str) -> None:
    code = f"""
import sys
import benchmax.rag{module}
from benchmax.rag import *
from benchmax.auth import InjectedAuth
class Corpus:
    available_modes = []
RagEnv(Corpus(), judge_base_url="http://x", judge_model="m")
OpenAIEmbedder(DEFAULT_EMBED_MODEL, "http://x", InjectedAuth("embedding"))
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & HEAVY


def test_the_judge_is_injected_by_default() -> None:
    env: Any = RagEnv(Corpus(), judge_base_url="http://x", judge_model="m")
    assert env._judge.auth == InjectedAuth("judge")
