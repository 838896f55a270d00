"""Answer blocks, source ids and the scores made of them: recorded facts, and what holds for every input."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rag.env import (
    canonicalize_source_id,
    canonicalize_source_id_loose,
    extract_answer_block,
    extract_reference_ids,
    extract_source_ids,
    score_citation_grounding,
    score_citations,
    score_rag_sources,
    score_retrieval_sources,
    score_search_efficiency,
)
from tests.contract.rag_lab import RECORDED, chunks

SOURCES = st.sampled_from(["a", "b.md", "B.md", "docs/c.txt", "d", " a "])
SOURCE_LISTS = st.lists(SOURCES, max_size=5)
CANONICAL = st.sampled_from([canonicalize_source_id, canonicalize_source_id_loose])


def labels(sources: list[str]) -> str:
    return " and ".join(f"[Source: {source}]" for source in sources)


# --- recorded facts


@pytest.mark.parametrize(("text", "answer"), RECORDED["answer_blocks"])
def test_an_answer_block_is_found_as_recorded(text: str, answer: str) -> None:
    assert extract_answer_block(text) == answer


@pytest.mark.parametrize(("source", "canonical"), RECORDED["strict_ids"])
def test_the_strict_form_only_strips(source: str, canonical: str) -> None:
    assert canonicalize_source_id(source) == canonical


@pytest.mark.parametrize(("source", "canonical"), RECORDED["loose_ids"])
def test_the_loose_form_is_a_lower_case_name_without_folders_and_extension(source: str, canonical: str) -> None:
    assert canonicalize_source_id_loose(source) == canonical


@pytest.mark.parametrize(("text", "strict", "loose"), RECORDED["source_ids"])
def test_source_ids_are_read_as_recorded(text: str, strict: list[str], loose: list[str]) -> None:
    assert sorted(extract_source_ids(text)) == strict
    assert sorted(extract_source_ids(text, canonicalize=canonicalize_source_id_loose)) == loose


@pytest.mark.parametrize(("references", "strict", "loose"), RECORDED["reference_ids"])
def test_reference_ids_are_read_as_recorded(references: Any, strict: list[str], loose: list[str]) -> None:
    assert sorted(extract_reference_ids(references)) == strict
    assert sorted(extract_reference_ids(references, canonicalize=canonicalize_source_id_loose)) == loose


@pytest.mark.parametrize(("arguments", "score"), RECORDED["search_efficiency"])
def test_search_efficiency_is_as_recorded(arguments: dict[str, Any], score: float) -> None:
    assert score_search_efficiency(**arguments) == pytest.approx(score, abs=1e-9)


# --- ids


def test_a_source_without_an_id_is_none_before_and_after_its_canonical_form() -> None:
    assert extract_source_ids("[Source: ] [Source:] [Source: a]", canonicalize=lambda source: f"<{source}>") == {"<a>"}
    assert extract_source_ids("[Source: .hidden]", canonicalize=canonicalize_source_id_loose) == set()


def test_a_reference_whose_canonical_form_is_empty_still_counts_as_one() -> None:
    assert extract_reference_ids(chunks(".hidden"), canonicalize=canonicalize_source_id_loose) == {""}
    assert score_citations("[Source: .hidden]", chunks(".hidden"), canonicalize=canonicalize_source_id_loose) == (0, 0)


def test_a_canonical_form_gets_stripped_ids() -> None:
    seen: list[str] = []

    def note(source: str) -> str:
        seen.append(source)
        return source

    extract_source_ids("[Source:  a ]", canonicalize=note)
    extract_reference_ids(chunks(" b "), canonicalize=note)
    assert seen == ["a", "b"]


def test_no_list_of_chunks_at_all_is_a_type_error() -> None:
    nothing: Any = None
    with pytest.raises(TypeError):
        extract_reference_ids(nothing)


# --- scores


def test_citations_are_scored_by_recall_and_precision() -> None:
    answer = labels(["a", "b", "x", "y"])
    assert score_citations(answer, chunks("a", "b", "c")) == pytest.approx((2 / 3, 1 / 2))
    assert score_citations("no citation", chunks("a")) == (0.0, 0.0)
    assert score_citations(answer, []) == (0.0, 0.0)


def test_retrieval_is_the_share_of_references_that_results_are_labelled_with() -> None:
    assert score_retrieval_sources(labels(["a", "z"]), chunks("a", "b")) == 0.5
    assert score_retrieval_sources(labels(["a"]), []) == 0.0
    assert score_retrieval_sources("", chunks("a")) == 0.0


def test_grounding_is_the_share_of_citations_that_were_retrieved() -> None:
    assert score_citation_grounding(labels(["a", "b"]), labels(["b", "c"])) == 0.5
    assert score_citation_grounding("no citation", labels(["b"])) == 0.0


def test_repeated_sources_count_once() -> None:
    assert score_citations(labels(["a", "a", "x"]), chunks("a", "a", "b")) == (0.5, 0.5)


def test_matching_is_strict_unless_told_otherwise() -> None:
    answer, tool_text, references = "[Source: rivers]", "[source: docs/Rivers.md]", chunks("rivers.txt")
    assert score_rag_sources(answer, tool_text, references) == {
        "retrieval_hit": 0.0,
        "citation_recall": 0.0,
        "citation_grounding": 0.0,
    }
    assert score_rag_sources(answer, tool_text, references, canonicalize=canonicalize_source_id_loose) == {
        "retrieval_hit": 1.0,
        "citation_recall": 1.0,
        "citation_grounding": 1.0,
    }


@given(SOURCE_LISTS, SOURCE_LISTS, SOURCE_LISTS, CANONICAL)
def test_all_source_scores_are_shares_and_agree_with_each_other(
    cited: list[str], retrieved: list[str], references: list[str], canonicalize: Any
) -> None:
    answer, tool_text, wanted = labels(cited), labels(retrieved), chunks(*references)
    scores = score_rag_sources(answer, tool_text, wanted, canonicalize=canonicalize)
    recall, precision = score_citations(answer, wanted, canonicalize=canonicalize)
    assert scores["retrieval_hit"] == score_retrieval_sources(tool_text, wanted, canonicalize=canonicalize)
    assert scores["citation_recall"] == recall
    assert scores["citation_grounding"] == score_citation_grounding(answer, tool_text, canonicalize=canonicalize)
    shares = (scores["retrieval_hit"], scores["citation_recall"], scores["citation_grounding"], precision)
    assert all(0 <= share <= 1 for share in shares)
    # the same sources are shared, whichever side is asked
    assert (recall > 0) == (precision > 0)


@given(SOURCE_LISTS, SOURCE_LISTS, SOURCES)
def test_retrieving_or_citing_one_more_source_never_lowers_a_share_of_the_references(
    sources: list[str], references: list[str], more: str
) -> None:
    wanted = chunks(*references)
    before, after = labels(sources), labels([*sources, more])
    assert score_retrieval_sources(after, wanted) >= score_retrieval_sources(before, wanted)
    assert score_citations(after, wanted)[0] >= score_citations(before, wanted)[0]


@given(SOURCE_LISTS, SOURCE_LISTS)
def test_citing_exactly_what_was_retrieved_is_wholly_grounded(sources: list[str], others: list[str]) -> None:
    grounding = score_citation_grounding(labels(sources), labels(sources + others))
    assert grounding == (1.0 if sources else 0.0)


# --- answer blocks


@given(st.text(max_size=30).filter(lambda text: "<" not in text), st.text(max_size=30), st.text(max_size=30))
def test_a_closed_block_is_found_whatever_stands_around_it(inner: str, before: str, after: str) -> None:
    text = f"{before.replace('<', '')}<answer>{inner}</answer>{after.replace('<', '')}"
    assert extract_answer_block(text) == inner.strip()


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "<ANSWER\n>", "</Answer >", "x", " ", "\n"]), max_size=12))
def test_a_block_is_always_a_stripped_part_of_the_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    block = extract_answer_block(text)
    assert block in text
    assert block == block.strip()
    assert block == "" or any(piece.lower().startswith("<answer") for piece in pieces)


@pytest.mark.parametrize(
    "text", ["<answer>" * 200_000, "<answer" * 200_000, "[source: " * 200_000, "[source:" + " " * 10**6]
)
def test_endless_openings_cost_no_more_than_their_length(text: str) -> None:
    # the time-out of the suite is the check: a pattern that starts again at every opening would need hours
    extract_answer_block(text)
    assert extract_source_ids(text) == set()


# --- search efficiency


def test_searches_beyond_the_free_ones_decay() -> None:
    arguments: dict[str, Any] = {"correctness": 1.0, "max_search_calls": 10, "weight": 0.5}
    assert score_search_efficiency(calls=3, reference_chunk_count=1, **arguments) == 0.5
    assert score_search_efficiency(calls=5, reference_chunk_count=1, **arguments) == pytest.approx(0.5 * math.exp(-0.4))
    assert score_search_efficiency(calls=11, reference_chunk_count=1, **arguments) == 0.0


def test_a_wrong_answer_has_no_efficiency_and_negative_counts_are_refused() -> None:
    counts: dict[str, Any] = {"reference_chunk_count": 1, "max_search_calls": 10, "weight": 1.0}
    assert score_search_efficiency(calls=0, correctness=0.0, **counts) == 0.0
    assert score_search_efficiency(calls=0, correctness=-1.0, **counts) == 0.0
    with pytest.raises(ValueError, match="non-negative"):
        score_search_efficiency(calls=-1, correctness=1.0, **counts)


@given(
    calls=st.integers(0, 20),
    correctness=st.floats(0, 1),
    references=st.integers(0, 5),
    most=st.integers(1, 15),
    decay=st.floats(0, 3),
)
def test_efficiency_is_at_most_the_correctness_and_falls_with_every_call(
    calls: int, correctness: float, references: int, most: int, decay: float
) -> None:
    def score(count: int) -> float:
        return score_search_efficiency(
            calls=count,
            correctness=correctness,
            reference_chunk_count=references,
            max_search_calls=most,
            weight=1.0,
            decay_rate=decay,
        )

    assert 0 <= score(calls + 1) <= score(calls) <= correctness
