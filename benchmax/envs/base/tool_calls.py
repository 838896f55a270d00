"""Tool calls of a model: reading their arguments and writing their results into the transcript."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["RejectedArguments", "advertised_names", "parse_arguments", "result_content"]


class RejectedArguments(Exception):  # noqa: N818 - not an error of ours: its text is what the model is told
    """Raised when a model's tool arguments are not a JSON object; `str()` is the tool message for the model."""


def advertised_names(tools: Iterable[object]) -> frozenset[str]:
    """Collect `tool["function"]["name"]` of the listed tools, skipping entries of another shape."""
    names = set()
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            names.add(name)
    return frozenset(names)


def parse_arguments(text: str | None) -> dict[str, Any]:
    """Parse the arguments of one call; an empty or absent text means no arguments.

    Raises:
        RejectedArguments: the text is not JSON or not an object.
    """
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise RejectedArguments(f"Invalid JSON tool arguments: {error}") from error
    if not isinstance(arguments, dict):
        raise RejectedArguments("Tool arguments must be a JSON object.")
    return arguments


def result_content(result: object) -> str | list[Mapping[str, Any]]:
    """Turn what a tool returned into the content of its message.

    Returns:
        Text and image parts as they are, text unchanged, nothing as `""`, JSON-like values as compact JSON, and
        anything else as `str()` of it.

    Raises:
        TypeError: a JSON-like value has a member that JSON cannot hold.
        ValueError: a JSON-like value contains itself.
    """
    if isinstance(result, (list, tuple)) and result and all(map(_is_content_part, result)):
        return list(result)
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, Mapping):
        return _compact_json(dict(result))
    if isinstance(result, (list, tuple, int, float)):
        return _compact_json(result)
    return str(result)


def _is_content_part(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") in ("text", "image_url")


def _compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
