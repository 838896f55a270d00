"""Objects that cannot travel: that cannot be pickled, that cannot be loaded again, or that lose a part on the way."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from benchmax.bundle.findings.finding import Finding
from benchmax.bundle.findings.walk import Anchor, Node, Walk, as_instance

OVERSIZED_BYTES: Final = 1024 * 1024
"""Data that makes a bundle slow to send and to start; code is hardly ever as large."""

_LATER: Final = "Make it inside a function when it is first needed, and keep it in an attribute that starts as None."

_FLATTER: Final = "Keep it less deeply nested: as rows in a list, with indices in place of references."

_FIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_thread.lock": f"{_LATER} In async code, an asyncio.Lock made in __init__ does.",
        "_thread.RLock": f"{_LATER} In async code, an asyncio.Lock made in __init__ does.",
        "builtins.generator": "Keep the function that makes the generator, or a list of its items.",
        "_contextvars.ContextVar": "Pass the value as an argument, or key a dict by the rollout's id.",
        "_io.TextIOWrapper": "Open the file in the function that reads it.",
        "_io.BufferedReader": "Open the file in the function that reads it.",
        "logging.StreamHandler": "Leave handlers out: the runner collects what is logged and printed.",
        "logging.FileHandler": "Leave handlers out: the runner collects what is logged and printed.",
    }
)


def find_unpicklable(walk: Walk) -> Iterator[Finding]:
    """Yield what cannot be pickled, one finding for each name that holds such a thing."""
    named: set[Anchor] = set()
    for node, error in walk.stuck:
        if node.anchor in named:
            continue
        named.add(node.anchor)
        kind = _type_name(node.value)
        yield Finding(
            severity="error",
            code="unpicklable",
            what=f"{node.path} ({kind})",
            message=f"it cannot be pickled: {type(error).__name__}: {error}",
            fix=_FLATTER if isinstance(error, RecursionError) else _FIXES.get(kind, _LATER),
            file=node.anchor.file,
            line=node.anchor.line,
        )


def find_by_name_only(walk: Walk) -> Iterator[Finding]:
    """Yield what is pickled as no more than its name in a module that travels by value, so that no import finds it."""
    for node, module in walk.by_name:
        kind = _type_name(node.value)
        fix = "Replace it by a plain function or class, or make it inside a function that runs when it is first needed."
        if kind == "functools._lru_cache_wrapper":
            fix = "Drop the decorator and keep results in a dict, or decorate inside a function: it is made there anew."
        yield Finding(
            severity="error",
            code="by-name-only",
            what=f"{node.path} ({kind})",
            message=f"it is pickled as a name in {module}, which cannot be imported where the bundle is loaded",
            fix=fix,
            file=node.anchor.file,
            line=node.anchor.line,
        )


def find_lost_handlers(walk: Walk) -> Iterator[Finding]:
    """Yield loggers whose handlers stay behind."""
    for node in walk.nodes:
        logger = as_instance(node.value, logging.Logger)
        if logger is None or not logger.handlers:
            continue
        yield Finding(
            severity="warning",
            code="logger-handlers",
            what=f"{node.path} ({_type_name(node.value)})",
            message="a logger travels as its name: its handlers and its level stay behind",
            fix="Leave handlers out: the runner collects what is logged and printed.",
            file=node.anchor.file,
            line=_line_of_handlers(walk, node),
        )


def find_oversized(walk: Walk) -> Iterator[Finding]:
    """Yield names that hold more data than a bundle should carry."""
    for anchor, size in walk.anchored.items():
        if size > OVERSIZED_BYTES:
            yield Finding(
                severity="warning",
                code="oversized",
                what=anchor.path,
                message=f"it puts {size:,} bytes of data into the bundle, which every worker loads",
                fix="Keep it in a file of the dataset's folder and read it below base_dir in create_dataset.",
                file=anchor.file,
                line=anchor.line,
            )


def _line_of_handlers(walk: Walk, node: Node) -> int:
    name = node.path.rpartition("globals['")[2].removesuffix("']")
    return walk.places.of_call(node.anchor.file, name, "addHandler") or node.anchor.line


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
