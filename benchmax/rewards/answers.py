"""What a judge answered: the JSON object in its text, and the fields that rubrics ask for. Private.

A `ValueError` from here says what is wrong with the answer; nothing is repaired or guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.rewards.arguments import is_finite, is_number

__all__ = ["json_object", "optional_text", "score_of", "shortened", "tiers_of"]


def json_object(raw: str) -> dict[str, Any]:
    """Return the first JSON object of an answer: the whole text, or what is found in it.

    Think blocks and a code fence around the text are dropped before.

    Raises:
        ValueError: there is none.
    """
    text = _without_think_blocks(raw).strip()
    if text.startswith("```") and text.endswith("```"):
        lines = text.split("\n")
        if len(lines) >= 2:
            text = "\n".join(lines[1:-1]).strip()
    found = _first_object(text)
    if found is None:
        raise ValueError(f"the answer contains no valid JSON object: {shortened(raw)!r}")
    return found


def _without_think_blocks(text: str) -> str:
    # searched by hand: a pattern would look for the end again from every start, in quadratic time
    kept = []
    position = 0
    while (start := text.find("<think>", position)) >= 0 and (end := text.find("</think>", start)) >= 0:
        kept.append(text[position:start])
        position = end + len("</think>")
    return "".join(kept) + text[position:]


def _first_object(text: str) -> dict[str, Any] | None:
    decoder = json.JSONDecoder()
    try:
        whole = decoder.decode(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict):
        return whole
    start = text.find("{")
    while start >= 0:
        try:
            found: dict[str, Any] = decoder.raw_decode(text, start)[0]
        except RecursionError as error:
            # not searched further down: that would parse as many levels again, once for each of them
            raise ValueError("the answer is nested too deeply to be read as a valid JSON object") from error
        except ValueError:
            start = text.find("{", start + 1)
        else:
            # what decodes from a brace is an object
            return found
    return None


def optional_text(answer: Mapping[str, Any], name: str) -> str:
    """Return a field that may be missing, as `""` then.

    Raises:
        ValueError: it is not a string.
    """
    text = answer.get(name, "")
    if not isinstance(text, str):
        raise ValueError(f"{name!r} must be a string, got {shortened(repr(text))}")
    return text


def score_of(answer: Mapping[str, Any], allowed: Sequence[float]) -> float:
    """Return the `score` of an answer.

    Raises:
        ValueError: it is missing, not a finite number, or not among the allowed ones.
    """
    if "score" not in answer:
        raise ValueError(f"the answer has no 'score', only {shortened(repr(sorted(answer)))}")
    score = answer["score"]
    if not is_number(score) or not is_finite(score):
        raise ValueError(f"'score' must be a finite number, got {shortened(repr(score))}")
    if score not in allowed:
        raise ValueError(f"'score' {score!r} is not one of the allowed scores {list(allowed)}")
    return float(score)


def tiers_of(answer: Mapping[str, Any], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the `ranking` of an answer about `count` items: tiers of their indices, best first.

    Raises:
        ValueError: it is not a list of non-empty lists that name every index exactly once.
    """
    ranking = answer.get("ranking")
    if not isinstance(ranking, list) or not ranking:
        raise ValueError(f"'ranking' must be a non-empty list of tiers, got {shortened(repr(ranking))}")
    seen: set[int] = set()
    for position, tier in enumerate(ranking):
        if not isinstance(tier, list) or not tier:
            raise ValueError(
                f"'ranking' must consist of tiers, each a non-empty list of indices; "
                f"number {position} is {shortened(repr(tier))}"
            )
        for index in tier:
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
                raise ValueError(f"'ranking' holds {shortened(repr(index))}, not an index from 0 to {count - 1}")
            if index in seen:
                raise ValueError(f"'ranking' has repeated the index {index}")
            seen.add(index)
    omitted = sorted(set(range(count)) - seen)
    if omitted:
        raise ValueError(f"'ranking' has omitted {omitted} of the indices 0 to {count - 1}")
    return tuple(map(tuple, ranking))


def shortened(text: str, most: int = 200) -> str:
    """Return a text, cut after `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
