"""Measures of a completion that need no model: answers, overlap, citations, tool calls.

A completion is either a text or a transcript of chat messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, TypeAlias

__all__ = [
    "Completion",
    "citation_score",
    "clip01",
    "count_search_calls",
    "extract_answer_block",
    "extract_completion_text",
    "overlap_reward",
    "percent_of_text_a_in_text_b",
    "search_within_budget",
    "tool_call_efficiency",
]

Completion: TypeAlias = str | Sequence[Mapping[str, Any]]

_ANSWER_START = re.compile("<answer>", re.IGNORECASE)
_ANSWER_END = re.compile("</answer>", re.IGNORECASE)
_CITATION_START = re.compile(r"\[source:\s*", re.IGNORECASE)

_FREE_CALLS: Final = 2
"""Searches that cost nothing on top of one per reference chunk."""


def extract_completion_text(completion: Completion) -> str:
    """Return the final answer of a completion, stripped.

    A transcript answers with its last message, if that is the assistant's and its content is a text; else with
    nothing.
    """
    if isinstance(completion, str):
        return completion.strip()
    last = completion[-1] if completion else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return ""
    content = last.get("content")
    return content.strip() if isinstance(content, str) else ""


def extract_answer_block(text: str) -> str:
    """Return what the first `<answer>...</answer>` contains, or the whole text without one; stripped."""
    # two searches and not one pattern: that would look for the end again from every start, in quadratic time
    start = _ANSWER_START.search(text)
    end = start and _ANSWER_END.search(text, start.end())
    if start is None or end is None:
        return text.strip()
    return text[start.end() : end.start()].strip()


def clip01(v: Any) -> float:
    """Return `v` as a float between 0 and 1; what is no finite number becomes 0."""
    try:
        number = float(v)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(1.0, max(0.0, number)) if math.isfinite(number) else 0.0


def percent_of_text_a_in_text_b(a: str, b: str) -> float:
    """Return how much of `a`, from 0 to 1, lies in blocks that it shares with `b` in the same order."""
    if not a:
        return 0.0
    return sum(block.size for block in SequenceMatcher(None, a, b).get_matching_blocks()) / len(a)


def overlap_reward(
    completion: Completion,
    ground_truth: Any,
    *,
    reference_chunks: Sequence[Mapping[str, Any]] = (),
    minimum_overlap: float = 0.25,
) -> float:
    """Return how much of a reference the completion's text contains, from 0 to 1.

    Args:
        completion: What the model produced.
        ground_truth: The reference, unless chunks are given.
        reference_chunks: Chunks whose `content`, joined by spaces, is the reference.
        minimum_overlap: Anything below it counts as 0.

    Raises:
        ValueError: `minimum_overlap` is outside of [0, 1].
    """
    if not 0 <= minimum_overlap <= 1:
        raise ValueError(f"overlap_reward needs a minimum_overlap in [0, 1], got {minimum_overlap!r}.")
    if reference_chunks:
        reference = " ".join(str(chunk.get("content", "")) for chunk in reference_chunks)
    else:
        reference = str(ground_truth or "")
    score = percent_of_text_a_in_text_b(reference, extract_completion_text(completion))
    return score if score >= minimum_overlap else 0.0


def count_search_calls(completion: Completion) -> int:
    """Count the `<tool_call>` marks in a text, or in the texts of a transcript's assistant messages."""
    if isinstance(completion, str):
        return completion.count("<tool_call>")
    contents = (message.get("content") for message in completion if message.get("role") == "assistant")
    return sum(content.count("<tool_call>") for content in contents if isinstance(content, str))


def search_within_budget(calls: int, max_calls: int) -> bool:
    """Say whether `calls` is at most `max_calls`.

    Raises:
        ValueError: one of them is negative.
    """
    _require_non_negative("search_within_budget", calls=calls, max_calls=max_calls)
    return calls <= max_calls


def citation_score(
    completion: Completion,
    reference_chunks: Sequence[Mapping[str, Any]],
    *,
    source_field: str | Sequence[str] = "source_id",
    canonicalize: Callable[[str], str] | None = None,
) -> dict[str, float]:
    """Compare the sources that a completion cites as `[Source: X]` with those of the reference chunks.

    Args:
        completion: What the model produced.
        reference_chunks: Chunks that name their source in `metadata`.
        source_field: Name of the metadata field, or several of which the first with a value counts.
        canonicalize: Brings a source to the form in which sources are compared; default strips it.

    Returns:
        `precision` and `recall`, each from 0 to 1; both 0 where nothing is cited or there is no reference.

    Raises:
        ValueError: `source_field` names no field.
    """
    fields = (source_field,) if isinstance(source_field, str) else tuple(source_field)
    if not fields:
        raise ValueError("citation_score needs at least one source_field; pass for example 'source_id'.")
    normalise = canonicalize or str.strip
    cited = _normalised(_citations(extract_completion_text(completion)), normalise)
    references = _normalised(_sources(reference_chunks, fields), normalise)
    if not cited or not references:
        return {"precision": 0.0, "recall": 0.0}
    shared = len(cited & references)
    return {"precision": shared / len(cited), "recall": shared / len(references)}


def _normalised(sources: Iterator[str], normalise: Callable[[str], str]) -> frozenset[str]:
    return frozenset(source for source in map(normalise, sources) if source.strip())


def _citations(text: str) -> Iterator[str]:
    start = _CITATION_START.search(text)
    while start is not None:
        end = text.find("]", start.end())
        if end < 0:
            return
        yield text[start.end() : end]
        start = _CITATION_START.search(text, end)


def _sources(chunks: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> Iterator[str]:
    for chunk in chunks:
        metadata = chunk.get("metadata")
        if isinstance(metadata, Mapping):
            values = (str(metadata[field]) for field in fields if metadata.get(field) is not None)
            yield next((value for value in values if value.strip()), "")


def tool_call_efficiency(
    completion: Completion,
    *,
    correctness: float = 1.0,
    reference_chunk_count: int = 0,
    max_calls: int = 10,
    decay_rate: float = 0.2,
    ranges: Sequence[tuple[int, int | None, float]] | None = None,
) -> float:
    """Return a correctness that shrinks with every search beyond those the question needs, from 0 to 1.

    Args:
        completion: What the model produced; its `<tool_call>` marks are counted.
        correctness: Reward of an answer that searched no more than necessary.
        reference_chunk_count: Chunks to be found; as many searches and two more cost nothing.
        max_calls: More searches than these give 0.
        decay_rate: How fast each further search lowers the reward, as the exponent of e.
        ranges: Fixed scores instead, as `(fewest, most or None, score)`; the first that fits counts, none gives 0.

    Raises:
        ValueError: a count or the decay is negative, or a range that was looked at is malformed.
    """
    _require_non_negative(
        "tool_call_efficiency",
        reference_chunk_count=reference_chunk_count,
        max_calls=max_calls,
        decay_rate=decay_rate,
    )
    calls = count_search_calls(completion)
    if ranges is not None:
        return _range_score(calls, ranges)
    correct = clip01(correctness)
    if correct == 0 or calls > max_calls:
        return 0.0
    excess = calls - (reference_chunk_count + _FREE_CALLS)
    return correct * math.exp(-decay_rate * excess) if excess > 0 else correct


def _range_score(calls: int, ranges: Sequence[tuple[int, int | None, float]]) -> float:
    for index, (fewest, most, score) in enumerate(ranges):
        if fewest < 0 or (most is not None and most < fewest):
            raise ValueError(
                f"tool_call_efficiency: ranges[{index}] = {(fewest, most, score)!r} is malformed; "
                "it needs 0 <= min <= max, or None as max."
            )
        if fewest <= calls and (most is None or calls <= most):
            return clip01(score)
    return 0.0


def _require_non_negative(function: str, **numbers: float) -> None:
    for name, number in numbers.items():
        # written so that NaN is refused, too
        if not number >= 0:
            raise ValueError(f"{function} needs a non-negative {name}, got {number!r}.")
