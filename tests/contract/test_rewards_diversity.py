"""Clusters of texts, and rewards divided among them."""

from __future__ import annotations

import json
import math
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.auth import StaticBearerAuth
from benchmax.rewards import (
    ClusterResult,
    Judge,
    JudgeError,
    LLMDiversityConfig,
    NgramDiversityConfig,
    cluster_texts,
    scale_by_diversity,
)
from benchmax.rewards.prompts import DEFAULT_DIVERSITY_INSTRUCTIONS
from tests.contract.loopback import ModelServer, error
from tests.contract.rewards_lab import judge_at, prompts_of, result_of, script_answers

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures" / "contract" / "diversity.json").read_text())
JUDGE = Judge("m", "http://model.example/v1", StaticBearerAuth("t"))


def clusters(texts: Any, n: int = 3, threshold: float = 0.5) -> ClusterResult:
    return result_of(cluster_texts(texts, NgramDiversityConfig(n, threshold)))


@pytest.mark.parametrize("vector", VECTORS)
def test_recorded_clusters(vector: dict[str, Any]) -> None:
    result = clusters(vector["texts"], vector["n"], vector["similarity_threshold"])
    assert list(result.cluster_ids) == vector["cluster_ids"]
    assert list(result.divisors) == vector["divisors"]


@pytest.mark.parametrize("n", [0, -1, 1.0, True, None])
def test_n_has_to_be_a_positive_integer(n: Any) -> None:
    with pytest.raises(ValueError, match="positive"):
        NgramDiversityConfig(n=n)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, "0.5", True])
def test_the_threshold_lies_in_the_unit_interval(threshold: Any) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        NgramDiversityConfig(similarity_threshold=threshold)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"instructions": " "}, "instructions"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
    ],
)
def test_what_a_judges_configuration_refuses(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LLMDiversityConfig(JUDGE, **options)


def test_the_defaults_are_these() -> None:
    assert NgramDiversityConfig() == NgramDiversityConfig(n=3, similarity_threshold=0.5)
    judged_by = LLMDiversityConfig(JUDGE)
    assert (judged_by.max_tokens, judged_by.temperature) == (512, 0.0)
    assert judged_by.instructions == DEFAULT_DIVERSITY_INSTRUCTIONS


def test_configurations_pickle_as_the_lists_of_their_fields() -> None:
    ngram, judged = NgramDiversityConfig(2, 0.4), LLMDiversityConfig(JUDGE)
    assert pickle.loads(pickle.dumps([ngram, judged])) == [ngram, judged]
    states: list[Any] = [value.__reduce_ex__(2)[2] for value in (ngram, judged)]
    assert states == [[2, 0.4], [JUDGE, DEFAULT_DIVERSITY_INSTRUCTIONS, 512, 0.0]]


def test_no_text_and_one_text_need_no_comparison() -> None:
    assert clusters([]) == ClusterResult((), ())
    assert clusters(["only"]) == ClusterResult(("0",), (1.0,))
    assert clusters([]).n_clusters == 0
    assert result_of(cluster_texts(["only"], LLMDiversityConfig(JUDGE))) == ClusterResult(("0",), (1.0,))


def test_texts_are_compared_lower_cased_and_stripped_and_as_text() -> None:
    assert clusters([" ABCD ", "abcd", 1234, "1234"]).cluster_ids == ("0", "0", "1", "1")


def test_a_text_shorter_than_n_is_one_gram_and_an_empty_one_has_none() -> None:
    assert clusters(["ab", "AB", "abc"], n=3, threshold=1.0).cluster_ids == ("0", "0", "1")
    assert clusters(["", " ", "a"], n=3, threshold=0.01).cluster_ids == ("0", "0", "1")
    assert clusters(["", "a"], threshold=0.0).n_clusters == 1


def test_the_threshold_itself_links() -> None:
    # ab bc cd against ab bc ce: two of four
    assert clusters(["abcd", "abce"], n=2, threshold=0.5).n_clusters == 1
    assert clusters(["abcd", "abce"], n=2, threshold=0.51).n_clusters == 2


def test_links_chain_and_clusters_are_numbered_by_first_appearance() -> None:
    texts = ["xyz", "abcd", "cdef", "bcde"]
    assert clusters(texts, n=2, threshold=0.5).cluster_ids == ("0", "1", "1", "1")


TEXTS = st.lists(st.text(alphabet="abc ", max_size=8), max_size=7)


@given(TEXTS, st.integers(1, 4), st.floats(0, 1), st.data())
def test_clusters_follow_a_permutation_and_partition_the_texts(
    texts: list[str], n: int, threshold: float, data: st.DataObject
) -> None:
    result = clusters(texts, n, threshold)
    order = data.draw(st.permutations(range(len(texts))))
    moved = clusters([texts[index] for index in order], n, threshold)
    assert [result.divisors[index] for index in order] == list(moved.divisors)
    pairs = list(product(range(len(texts)), repeat=2))
    assert [moved.cluster_ids[a] == moved.cluster_ids[b] for a, b in pairs] == [
        result.cluster_ids[order[a]] == result.cluster_ids[order[b]] for a, b in pairs
    ]
    assert sum(1 / divisor for divisor in result.divisors) == pytest.approx(result.n_clusters)
    firsts = list(dict.fromkeys(result.cluster_ids))
    assert firsts == [str(number) for number in range(len(firsts))]


@given(TEXTS.filter(lambda texts: len(texts) > 1), st.integers(1, 4), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_makes_fewer_clusters(texts: list[str], n: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert clusters(texts, n, low).n_clusters <= clusters(texts, n, high).n_clusters
    assert clusters(texts, n, 0.0).n_clusters == 1


# --- by a judge


async def judged(server: ModelServer, texts: Any, **options: Any) -> ClusterResult:
    config = LLMDiversityConfig(judge_at(server, max_retries=0), **options)
    return await cluster_texts(texts, config, context="the question")


def assigned(*cluster_ids: Any, **more: Any) -> dict[str, Any]:
    return {"assignments": [{"index": index, "cluster_id": name, **more} for index, name in enumerate(cluster_ids)]}


async def test_a_judge_assigns_clusters_with_labels(model_server: ModelServer) -> None:
    answer = {
        "assignments": [
            {"index": 2, "cluster_id": "x"},
            {"index": 0, "cluster_id": " x ", "label": " by hand "},
            {"index": 1, "cluster_id": "y", "label": ""},
        ]
    }
    script_answers(model_server, answer)
    result = await judged(model_server, ["a", "b", 7], max_tokens=99, temperature=0.5)
    assert result == ClusterResult(("x", "y", "x"), (2.0, 1.0, 2.0), ("by hand", "", ""), json.dumps(answer))
    assert result.n_clusters == 2
    body = model_server.requests[0].body
    assert (body["max_tokens"], body["temperature"]) == (99, 0.5)
    assert "the question" in prompts_of(model_server)[0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "'assignments' must be a list"),
        ({"assignments": {}}, "'assignments' must be a list"),
        ({"assignments": ["x"]}, "must be an object"),
        (assigned("x", "y", "z"), "out of range"),
        ({"assignments": [{"index": -1, "cluster_id": "x"}]}, "out of range"),
        ({"assignments": [{"index": "0", "cluster_id": "x"}]}, "integer as 'index'"),
        ({"assignments": [{"index": True, "cluster_id": "x"}]}, "integer as 'index'"),
        ({"assignments": [{"cluster_id": "x"}]}, "integer as 'index'"),
        ({"assignments": [{"index": 0, "cluster_id": "x"}, {"index": 0, "cluster_id": "x"}]}, "repeated"),
        (assigned("x"), "omitted"),
        (assigned("x", " "), "'cluster_id'"),
        (assigned("x", 1), "'cluster_id'"),
        (assigned("x", None), "'cluster_id'"),
        (assigned("x", "y", label=5), "'label' must be a string"),
        ("prose", "valid JSON object"),
    ],
)
async def test_an_answer_of_another_form_is_a_judge_error(model_server: ModelServer, answer: Any, text: str) -> None:
    script_answers(model_server, answer)
    with pytest.raises(JudgeError, match=f"diversity clustering failed.*{text}"):
        await judged(model_server, ["a", "b"])


async def test_a_failing_request_is_a_judge_error(model_server: ModelServer) -> None:
    model_server.answer = lambda received: error(400, None)
    with pytest.raises(JudgeError, match=r"diversity clustering failed.*request failed \(diversity-clustering"):
        await judged(model_server, ["a", "b"])


# --- rewards


def test_rewards_and_texts_have_to_match() -> None:
    with pytest.raises(ValueError, match="same length"):
        result_of(scale_by_diversity([{"a": 1.0}], ["x", "y"], NgramDiversityConfig()))


def test_every_component_is_divided_by_the_size_of_its_cluster_and_the_input_stays() -> None:
    rewards: list[dict[str, float]] = [{"a": 1.0, "b": -3}, {"a": 0.5}, {}]
    scaled, found = result_of(scale_by_diversity(rewards, ["same", "same", "other"], NgramDiversityConfig()))
    assert scaled == [{"a": 0.5, "b": -1.5}, {"a": 0.25}, {}]
    assert found.divisors == (2.0, 2.0, 1.0)
    assert rewards[0] == {"a": 1.0, "b": -3}


def test_no_rewards_scale_to_none() -> None:
    assert result_of(scale_by_diversity([], [], NgramDiversityConfig())) == ([], ClusterResult((), ()))


@given(TEXTS)
def test_each_cluster_earns_at_most_what_one_text_earns(texts: list[str]) -> None:
    scaled, found = result_of(scale_by_diversity([{"a": 1.0}] * len(texts), texts, NgramDiversityConfig()))
    assert all(0 < components["a"] <= 1 for components in scaled)
    assert sum(components["a"] for components in scaled) == pytest.approx(found.n_clusters)
