"""Annotations kept as text, whose names do not travel: only what code uses is taken along."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from types import FunctionType
from typing import Final

from benchmax.bundle.capture.imports import nested_codes
from benchmax.bundle.capture.parts import global_names
from benchmax.bundle.findings.finding import Finding
from benchmax.bundle.findings.walk import Node, Walk

_RESOLVERS: Final = frozenset(
    {"get_type_hints", "get_annotations", "eval_str", "evaluate_forward_ref", "validate_call", "TypeAdapter"}
)
"""Names of what turns annotations back into types; without any of them nobody notices what is missing."""


def find_unresolvable(walk: Walk) -> Iterator[Finding]:
    """Yield annotations with names that will be missing, if anything in the bundle resolves annotations."""
    functions = list(walk.functions)
    resolver = next((name for _, function in functions if (name := _resolver(function))), "")
    if not resolver:
        return
    kept: dict[int, set[str]] = {}
    for _, function in functions:
        # all functions of a module share one namespace after loading
        kept.setdefault(id(function.__globals__), set()).update(global_names(function.__code__))
    for node, function in functions:
        names = kept[id(function.__globals__)] | {*vars(builtins)}
        for label, annotation in function.__annotations__.items():
            missing = sorted(_names(annotation) - names)
            if missing:
                yield _finding(node, label, annotation, missing, resolver, function.__code__.co_firstlineno)
    for node, cls in walk.classes:
        for label, annotation in vars(cls).get("__annotations__", {}).items():
            # what resolves those looks in sys.modules, where the module is not
            missing = sorted(_names(annotation) - {*vars(builtins)})
            if missing:
                line = walk.places.of_attribute(node.anchor.file, cls.__qualname__, label)
                yield _finding(node, label, annotation, missing, resolver, line or node.anchor.line)


def _finding(node: Node, label: str, annotation: object, missing: list[str], resolver: str, line: int) -> Finding:
    code = getattr(node.value, "__code__", None)
    names = ", ".join(missing)
    return Finding(
        severity="warning",
        code="unresolved-annotation",
        what=f"{node.path} → annotation[{label!r}]",
        message=f"{resolver} will not find {names}: {annotation!r} is text, and only what code uses travels along",
        fix="Drop `from __future__ import annotations` and the quotes here, so that the types themselves travel.",
        file=node.anchor.file if code is None else code.co_filename,
        line=line,
    )


def _resolver(function: FunctionType) -> str:
    for code in nested_codes(function.__code__):
        for name in (*code.co_names, *(item for const in code.co_consts if isinstance(const, tuple) for item in const)):
            if isinstance(name, str) and name in _RESOLVERS:
                return name
    return ""


def _names(annotation: object) -> set[str]:
    if not isinstance(annotation, str):
        return set()
    try:
        tree = ast.parse(annotation, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        # resolving it fails for the author too
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
