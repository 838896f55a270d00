"""The tool with which a model searches: how it is offered, and the text in which results reach the model. Private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmax.envs import Tool

__all__ = ["MAX_TOOL_OUTPUT_CHARS", "TOOL_OUTPUT_TRUNCATION_SUFFIX", "default_mode_of", "result_text", "tool_schema"]

MAX_TOOL_OUTPUT_CHARS: Final = 10_000
"""Longest result that reaches the model, in characters: some 2,500 tokens, so that ten searches fit a context."""

TOOL_OUTPUT_TRUNCATION_SUFFIX: Final = "\n...[truncated due to character limit]"

_BOOKKEEPING: Final = frozenset({"content", "_local_hash", "chunk_hash", "char_count"})
"""Metadata that indexing leaves behind and that tells a model nothing; so are keys with a leading underscore."""


def default_mode_of(modes: Sequence[str]) -> str:
    """Return the mode of a search that names none: the best one there is, or `lexical` where there is none."""
    for mode in ("hybrid", "lexical"):
        if mode in modes:
            return mode
    return min(modes, default="lexical")


def tool_schema(modes: Sequence[str], default_mode: str) -> Tool:
    """Describe the tool in OpenAI's format; a mode can be chosen where there is more than one."""
    properties: dict[str, Any] = {
        "query": {
            "type": "string",
            "description": "What to look for, in words that a passage about it would use.",
        },
        "limit": {"type": "integer", "description": "Most passages to return. Default 10."},
    }
    if len(modes) > 1:
        properties["mode"] = {
            "type": "string",
            "enum": sorted(modes),
            "description": f"How to search. Default {default_mode}.",
        }
    return {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the corpus. Returns passages with their source ids, the best first.",
            "strict": False,
            "parameters": {"type": "object", "properties": properties, "required": ["query"]},
        },
    }


def result_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Write search results as the text that the model reads, one numbered block each, cut at the limit.

    Scoring reads the `[source: ...]` labels back from it.
    """
    text = "\n".join(_block(number, result) for number, result in enumerate(results, start=1))
    if not results:
        return "No results found."
    if len(text) <= MAX_TOOL_OUTPUT_CHARS:
        return text
    kept = text[: MAX_TOOL_OUTPUT_CHARS - len(TOOL_OUTPUT_TRUNCATION_SUFFIX)]
    return kept.rstrip() + TOOL_OUTPUT_TRUNCATION_SUFFIX


def _block(number: int, result: Mapping[str, Any]) -> str:
    header = f"{number}."
    source, score = result.get("source", ""), result.get("score", 0)
    if source:
        header += f" — [source: {source}]"
    if score:
        header += f" (score: {score:.2f})"
    lines = [header]
    shown = {name: value for name, value in (result.get("metadata") or {}).items() if _is_shown(name, value)}
    if shown:
        lines.append(f"   Metadata: {shown}")
    lines.append(f"   Content: {result.get('content', '')}")
    return "\n".join(lines)


def _is_shown(name: str, value: object) -> bool:
    if name in _BOOKKEEPING or name.startswith("_"):
        return False
    return value is not None and not (isinstance(value, str) and value == "")
