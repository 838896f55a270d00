"""Answers and the sources they name: reading both out of texts, and comparing sources. Private.

Bundles know these functions under `benchmax.rag.env`, which makes them its own.

A text names a source as `[Source: <id>]`, whether a model cites it or a search result is labelled with it. A reference
chunk names its source as `file` or `file_path` in its `metadata`. Ids are compared in a canonical form, and each counts
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from benchmax.rewards.deterministic import _citations

__all__ = [
    "RagSourceScores",
    "canonicalize_source_id",
    "canonicalize_source_id_loose",
    "extract_answer_block",
    "extract_reference_ids",
    "extract_source_ids",
    "score_citation_grounding",
    "score_citations",
    "score_rag_sources",
    "score_retrieval_sources",
]

_ANSWER_START: Final = re.compile(r"<answer\s*>", re.IGNORECASE)
_ANSWER_END: Final = re.compile(r"</answer\s*>", re.IGNORECASE)


class RagSourceScores(TypedDict):
    """How the sources of one rollout compare; each from 0 to 1.

    Attributes:
        retrieval_hit: Share of the reference sources that searching found.
        citation_recall: Share of the reference sources that the answer cites.
        citation_grounding: Share of the cited sources that searching found.
    """

    retrieval_hit: float
    citation_recall: float
    citation_grounding: float


def extract_answer_block(text: str) -> str:
    """Return what stands in the last `<answer>...</answer>`, else after the last `<answer>`, else nothing; stripped."""
    # searched one after the other: a single pattern would look for the end again from every start, in quadratic time
    answer = None
    start = _ANSWER_START.search(text)
    while start is not None and (end := _ANSWER_END.search(text, start.end())) is not None:
        answer = text[start.end() : end.start()]
        start = _ANSWER_START.search(text, end.end())
    if answer is None:
        answer = "".join(text[start.end() :] for start in list(_ANSWER_START.finditer(text))[-1:])
    return answer.strip()


def canonicalize_source_id(source_id: str) -> str:
    """Return an id without the white space around it: ids are the same only if they are spelled alike."""
    return source_id.strip()


def canonicalize_source_id_loose(source_id: str) -> str:
    """Return an id as a file name without folders and extension, in lower case: `docs/Rivers.md` is `rivers`."""
    return source_id.strip().lower().rpartition("/")[2].rsplit(".", 1)[0]


def extract_source_ids(text: str, *, canonicalize: Callable[[str], str] = canonicalize_source_id) -> set[str]:
    """Return the ids of all sources that a text names, in canonical form; blank ones are dropped.

    Args:
        text: An answer or the text of search results.
        canonicalize: Brings an id to the form in which ids are compared.
    """
    named = (canonicalize(source) for source in map(str.strip, _citations(text)) if source)
    return {source for source in named if source.strip()}


def extract_reference_ids(
    reference_chunks: Sequence[Mapping[str, Any]], *, canonicalize: Callable[[str], str] = canonicalize_source_id
) -> set[str]:
    """Return the ids of the chunks' sources in canonical form; chunks that name none are skipped.

    Args:
        reference_chunks: The passages that a question was written from.
        canonicalize: Brings an id to the form in which ids are compared.

    Raises:
        TypeError: there is no list of chunks at all.
    """
    found = set()
    for chunk in reference_chunks:
        metadata = chunk.get("metadata") if isinstance(chunk, dict) else None
        if isinstance(metadata, dict):
            source = str(metadata.get("file") or metadata.get("file_path") or "").strip()
            if source:
                found.add(canonicalize(source))
    return found


def score_citations(
    answer_text: str,
    reference_chunks: Sequence[Mapping[str, Any]],
    *,
    canonicalize: Callable[[str], str] = canonicalize_source_id,
) -> tuple[float, float]:
    """Compare what an answer cites with the reference sources.

    Returns:
        Recall and precision, each from 0 to 1; both 0 where there is no reference.
    """
    references = extract_reference_ids(reference_chunks, canonicalize=canonicalize)
    cited = extract_source_ids(answer_text, canonicalize=canonicalize)
    if not references:
        return 0.0, 0.0
    return _share(references, cited), _share(cited, references)


def score_retrieval_sources(
    tool_text: str,
    reference_chunks: Sequence[Mapping[str, Any]],
    *,
    canonicalize: Callable[[str], str] = canonicalize_source_id,
) -> float:
    """Return the share of the reference sources that search results name, from 0 to 1; 0 without a reference."""
    references = extract_reference_ids(reference_chunks, canonicalize=canonicalize)
    return _share(references, extract_source_ids(tool_text, canonicalize=canonicalize))


def score_citation_grounding(
    answer_text: str, tool_text: str, *, canonicalize: Callable[[str], str] = canonicalize_source_id
) -> float:
    """Return the share of an answer's citations that search results name, from 0 to 1; 0 without a citation."""
    cited = extract_source_ids(answer_text, canonicalize=canonicalize)
    return _share(cited, extract_source_ids(tool_text, canonicalize=canonicalize))


def score_rag_sources(
    answer_text: str,
    tool_text: str,
    reference_chunks: Sequence[Mapping[str, Any]],
    *,
    canonicalize: Callable[[str], str] = canonicalize_source_id,
) -> RagSourceScores:
    """Compare an answer's citations, the search results it came from, and the reference sources."""
    return {
        "retrieval_hit": score_retrieval_sources(tool_text, reference_chunks, canonicalize=canonicalize),
        "citation_recall": score_citations(answer_text, reference_chunks, canonicalize=canonicalize)[0],
        "citation_grounding": score_citation_grounding(answer_text, tool_text, canonicalize=canonicalize),
    }


def _share(wanted: set[str], found: set[str]) -> float:
    """Return how much of a set lies in another; 0 for an empty one."""
    return len(wanted & found) / len(wanted) if wanted else 0.0
