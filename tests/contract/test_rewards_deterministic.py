"""Measures of completions that need no model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import (
    citation_score,
    clip01,
    count_search_calls,
    extract_answer_block,
    extract_completion_text,
    overlap_reward,
    percent_of_text_a_in_text_b,
    search_within_budget,
    tool_call_efficiency,
)

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures" / "contract" / "deterministic.json").read_text())


def chunk(**metadata: Any) -> dict[str, Any]:
    return {"content": "", "metadata": metadata}


def test_a_texts_completion_is_the_text_stripped() -> None:
    assert extract_completion_text("  a b\n") == "a b"


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], ""),
        ([{"role": "assistant", "content": " 42 "}], "42"),
        ([{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "last"}], "last"),
        ([{"role": "assistant", "content": "42"}, {"role": "user", "content": "no"}], ""),
        ([{"role": "assistant", "content": "42"}, {"role": "tool", "content": "no"}], ""),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant", "content": [{"type": "text", "text": "42"}]}], ""),
        ([{"role": "assistant"}], ""),
        ([{"content": "42"}], ""),
        (["assistant"], ""),
    ],
)
def test_a_transcripts_completion_is_its_last_message_if_that_is_an_assistants_text(messages: Any, text: str) -> None:
    assert extract_completion_text(messages) == text


@pytest.mark.parametrize("vector", VECTORS["answer_block"])
def test_recorded_answer_blocks(vector: dict[str, str]) -> None:
    assert extract_answer_block(vector["text"]) == vector["answer"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("x <answer> 1 </answer> <answer>2</answer> y", "1"),
        ("<Answer>\n a\nb </aNSWER>", "a\nb"),
        ("< answer>1</answer>", "< answer>1</answer>"),
        ("<answer >1</answer>", "<answer >1</answer>"),
        (" <answer>1", "<answer>1"),
        (" </answer>1<answer>", "</answer>1<answer>"),
        ("<answer>a<answer>b</answer>", "a<answer>b"),
        ("<answer></answer>rest", ""),
    ],
)
def test_the_first_answer_block_counts_and_without_one_the_whole_text(text: str, answer: str) -> None:
    assert extract_answer_block(text) == answer


def test_many_unclosed_answer_tags_take_linear_time() -> None:
    text = "<answer>" * 200_000
    assert extract_answer_block(text) == text


@pytest.mark.parametrize("vector", VECTORS["clip01"])
def test_recorded_clipped_values(vector: dict[str, Any]) -> None:
    assert clip01(vector["value"]) == vector["clip"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, "nan", "-inf", [], {}, object(), 10**400, b"x"])
def test_what_is_no_finite_number_clips_to_zero(value: object) -> None:
    assert clip01(value) == 0.0


def test_bools_and_numeric_strings_clip_as_numbers() -> None:
    assert [clip01(True), clip01(False), clip01(" 0.25 "), clip01("2")] == [1.0, 0.0, 0.25, 1.0]


@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()))
def test_clipped_values_are_floats_in_the_unit_interval(value: object) -> None:
    clipped = clip01(value)
    assert isinstance(clipped, float)
    assert 0 <= clipped <= 1


@pytest.mark.parametrize("vector", VECTORS["overlap"])
def test_recorded_overlaps(vector: dict[str, Any]) -> None:
    assert percent_of_text_a_in_text_b(vector["a"], vector["b"]) == pytest.approx(vector["percent"], abs=1e-9)
    assert overlap_reward(vector["b"], vector["a"]) == pytest.approx(vector["reward"], abs=1e-9)


def test_nothing_of_an_empty_text_is_in_another() -> None:
    assert percent_of_text_a_in_text_b("", "abc") == 0.0


@given(st.text(alphabet="abc ", min_size=1, max_size=40), st.text(alphabet="abc ", max_size=40))
def test_overlap_is_a_share_and_complete_for_the_same_text(a: str, b: str) -> None:
    assert 0 <= percent_of_text_a_in_text_b(a, b) <= 1
    assert percent_of_text_a_in_text_b(a, a) == 1.0


@pytest.mark.parametrize("minimum", [-0.01, 1.01, math.nan])
def test_a_minimum_overlap_outside_of_the_unit_interval_is_refused(minimum: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        overlap_reward("a", "a", minimum_overlap=minimum)


def test_overlap_below_the_minimum_is_zero_and_at_the_minimum_counts() -> None:
    assert overlap_reward("ab", "abcd", minimum_overlap=0.5) == 0.5
    assert overlap_reward("ab", "abcd", minimum_overlap=0.51) == 0.0


def test_reference_chunks_replace_the_ground_truth_joined_by_a_space() -> None:
    chunks: list[Any] = [{"content": "ab"}, {"metadata": {}}, {"content": 12}]
    assert overlap_reward("ab  12", "something else", reference_chunks=chunks) == 1.0


@pytest.mark.parametrize("ground_truth", [None, "", 0])
def test_an_empty_reference_gives_zero(ground_truth: object) -> None:
    assert overlap_reward("anything", ground_truth) == 0.0


def test_the_ground_truth_counts_as_text() -> None:
    assert overlap_reward([{"role": "assistant", "content": "it is 42"}], 42) == 1.0


def test_search_calls_are_counted_in_a_text_and_in_the_assistants_texts() -> None:
    assert count_search_calls("<tool_call>a</tool_call><tool_call>b") == 2
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "<tool_call>"},
        {"role": "assistant", "content": "<tool_call> <tool_call>"},
        {"role": "tool", "content": "<tool_call>"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "<tool_call>"}]},
        {"role": "assistant", "content": "<tool_call>"},
    ]
    assert count_search_calls(messages) == 3


def test_a_budget_holds_up_to_and_with_its_maximum() -> None:
    assert [search_within_budget(calls, 2) for calls in (0, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(("calls", "most"), [(-1, 2), (1, -2)])
def test_a_negative_budget_or_count_is_refused(calls: int, most: int) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        search_within_budget(calls, most)


@pytest.mark.parametrize("vector", VECTORS["citation"])
def test_recorded_citation_scores(vector: dict[str, Any]) -> None:
    assert citation_score(vector["text"], vector["chunks"]) == pytest.approx(vector["score"], abs=1e-9)


def test_citations_are_found_in_any_case_up_to_the_bracket_and_count_once() -> None:
    text = "[source: A ] and [SOURCE:  A] and [Source: b\nc] and [Source: ] and [Source: d"
    assert citation_score(text, [chunk(source_id="A"), chunk(source_id="b\nc")]) == {"precision": 1.0, "recall": 1.0}


def test_many_unclosed_citations_take_linear_time() -> None:
    assert citation_score("[source: " * 200_000, [chunk(source_id="A")]) == {"precision": 0.0, "recall": 0.0}


def test_only_the_final_answers_citations_count() -> None:
    messages = [{"role": "assistant", "content": "[Source: A]"}, {"role": "assistant", "content": "[Source: B]"}]
    assert citation_score(messages, [chunk(source_id="A"), chunk(source_id="B")]) == {"precision": 1.0, "recall": 0.5}


def test_of_several_source_fields_the_first_with_a_visible_value_counts() -> None:
    chunks = [chunk(url=None, source_id=" ", name="A"), chunk(url=7, name="B"), chunk(other="C")]
    score = citation_score("[Source: A] [Source: 7]", chunks, source_field=["url", "source_id", "name"])
    assert score == {"precision": 1.0, "recall": 1.0}


def test_a_chunk_without_metadata_or_source_is_no_reference() -> None:
    chunks: list[Any] = [{"content": "x"}, {"metadata": "A"}, chunk(source_id="A")]
    assert citation_score("[Source: A]", chunks) == {"precision": 1.0, "recall": 1.0}


def test_canonical_forms_are_compared_and_blank_ones_dropped_on_both_sides() -> None:
    def canonical(source: str) -> str:
        return source.strip().lower().removeprefix("x")

    score = citation_score(
        "[Source: A] [Source: x]", [chunk(source_id="xA"), chunk(source_id="X")], canonicalize=canonical
    )
    assert score == {"precision": 1.0, "recall": 1.0}


def test_no_source_field_is_refused() -> None:
    with pytest.raises(ValueError, match="source_field"):
        citation_score("", [], source_field=[])


SOURCES = st.lists(st.sampled_from("ABCDEF"), max_size=6)


@given(SOURCES, SOURCES, st.randoms(use_true_random=False))
def test_citation_scores_are_shares_that_ignore_order(cited: list[str], known: list[str], random: Any) -> None:
    def score() -> dict[str, float]:
        text = " ".join(f"[Source: {source}]" for source in cited)
        return citation_score(text, [chunk(source_id=source) for source in known])

    first = score()
    random.shuffle(cited)
    random.shuffle(known)
    assert score() == first
    assert all(0 <= value <= 1 for value in first.values())


@pytest.mark.parametrize("vector", VECTORS["efficiency"])
def test_recorded_efficiencies(vector: dict[str, Any]) -> None:
    score = tool_call_efficiency("<tool_call>" * vector["calls"], reference_chunk_count=vector["reference_chunk_count"])
    assert score == pytest.approx(vector["score"], abs=1e-9)


@pytest.mark.parametrize("argument", ["reference_chunk_count", "max_calls", "decay_rate"])
def test_negative_counts_and_decay_are_refused(argument: str) -> None:
    negative: dict[str, Any] = {argument: -1}
    with pytest.raises(ValueError, match=f"non-negative {argument}"):
        tool_call_efficiency("", **negative)


@pytest.mark.parametrize(("correctness", "score"), [(0.5, 0.5), (7, 1.0), (-1, 0.0), (math.nan, 0.0), ("0.25", 0.25)])
def test_correctness_is_clipped(correctness: Any, score: float) -> None:
    assert tool_call_efficiency("", correctness=correctness) == score


def test_an_infinite_decay_leaves_what_is_within_the_free_calls() -> None:
    assert tool_call_efficiency("<tool_call>" * 2, decay_rate=math.inf) == 1.0
    assert tool_call_efficiency("<tool_call>" * 3, decay_rate=math.inf) == 0.0


def test_the_first_range_that_contains_the_calls_gives_its_clipped_score() -> None:
    ranges = [(0, 1, 0.5), (1, 3, 7.0), (4, None, 0.25)]
    scores = [tool_call_efficiency("<tool_call>" * calls, ranges=ranges, correctness=0) for calls in (0, 1, 3, 4, 99)]
    assert scores == [0.5, 0.5, 1.0, 0.25, 0.25]


def test_no_range_that_contains_the_calls_gives_zero() -> None:
    assert tool_call_efficiency("<tool_call>", ranges=[(2, 3, 1.0)]) == 0.0
    assert tool_call_efficiency("<tool_call>", ranges=[]) == 0.0


@pytest.mark.parametrize("malformed", [(-1, 3, 1.0), (3, 2, 1.0)])
def test_a_malformed_range_is_refused_unless_an_earlier_one_matches(malformed: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match="malformed"):
        tool_call_efficiency("", ranges=[(1, 2, 1.0), malformed])
    assert tool_call_efficiency("", ranges=[(0, 2, 1.0), malformed]) == 1.0


@given(
    calls=st.integers(0, 30),
    chunks=st.integers(0, 10),
    most=st.integers(0, 30),
    correctness=st.floats(allow_nan=True),
    decay=st.floats(min_value=0, allow_nan=False),
)
def test_efficiency_is_bounded_and_never_grows_with_the_calls(
    calls: int, chunks: int, most: int, correctness: float, decay: float
) -> None:
    def score(count: int) -> float:
        return tool_call_efficiency(
            "<tool_call>" * count,
            correctness=correctness,
            reference_chunk_count=chunks,
            max_calls=most,
            decay_rate=decay,
        )

    assert 0 <= score(calls + 1) <= score(calls) <= 1
