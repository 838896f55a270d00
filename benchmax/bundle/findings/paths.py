"""Files of the author's machine that a bundle counts on: absolute paths, and data beside a module."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from types import FunctionType
from typing import Final

from benchmax.bundle.capture.imports import nested_codes
from benchmax.bundle.capture.sources import PROJECT_MARKER, project_root
from benchmax.bundle.findings.finding import Finding, Severity
from benchmax.bundle.findings.walk import Anchor, Node, Walk, as_instance

_OF_EVERY_MACHINE: Final = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_ANYWHERE: Final = frozenset({"/", "/home", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/tmp"})  # noqa: S108
_LONGEST: Final = 4096
_OWN_PLACE: Final = frozenset({"__file__", "__spec__", "__path__"})
_OWN_PATHS: Final = tuple(f" → globals[{name!r}]" for name in sorted(_OWN_PLACE))
_RESOURCE_READERS: Final = frozenset({"files", "get_data", "open_binary", "open_text", "read_binary", "read_text"})

_FIX: Final = (
    "Put the file into the dataset's folder and read it below base_dir in create_dataset, or keep its content in a "
    "constant of the module."
)


def find_author_paths(walk: Walk, known: frozenset[Anchor]) -> Iterator[Finding]:
    """Yield paths that mean something on this machine alone.

    Args:
        walk: What travels.
        known: What is known to be wrong as a whole.
    """
    projects = _projects(walk)
    objects: set[Anchor] = set()
    for node in walk.nodes:
        if node.anchor in known:
            continue
        path = as_instance(node.value, PurePath)
        if path is not None and path.is_absolute() and not _is_common(str(path)):
            objects.add(node.anchor)
            yield _author_path(node.path, str(path), node.anchor.file, node.anchor.line, projects)
    for text in walk.texts:
        # a path object may be pickled as its text
        if text.anchor in known or text.anchor in objects or text.path.endswith(_OWN_PATHS):
            continue
        if _is_path_here(text.text):
            yield _author_path(text.path, text.text, text.file, text.line, projects)


def find_own_files(walk: Walk) -> Iterator[Finding]:
    """Yield functions that ask where their module lies."""
    for node, function in walk.functions:
        if walk.travel.is_authors(function.__code__.co_filename):
            yield from _own_files(node, function)


def _own_files(node: Node, function: FunctionType) -> Iterator[Finding]:
    for code in nested_codes(function.__code__):
        reads = bool(_RESOURCE_READERS & {*code.co_names})
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname != "LOAD_GLOBAL" or not (
                name in _OWN_PLACE or (reads and name in ("__package__", "__name__"))
            ):
                continue
            yield Finding(
                severity="error",
                code="module-file",
                what=f"{node.path} → globals[{name!r}]",
                message="it looks for files beside its module, which is no file where the bundle is loaded",
                fix=_FIX,
                file=code.co_filename,
                line=(instruction.positions.lineno if instruction.positions else None) or code.co_firstlineno,
            )


def _author_path(path: str, text: str, file: str, line: int, projects: Iterable[Path]) -> Finding:
    # a constructor argument may well be meant for the machine that runs the bundle
    inside = bool(file) and any(Path(text).is_relative_to(project) for project in projects)
    severity: Severity = "error" if inside else "warning"
    where = "in your project, which does not travel along" if inside else "of this machine"
    return Finding(
        severity=severity,
        code="author-path",
        what=path,
        message=f"it is the path {text}, {where}",
        fix=_FIX,
        file=file,
        line=line,
    )


def _projects(walk: Walk) -> list[Path]:
    """Return the folders of the author's source: projects, and the folder of a module outside of any."""
    found: dict[Path, None] = dict.fromkeys(walk.travel.scope.roots)
    for node in walk.nodes:
        if node.anchor.file and Path(node.anchor.file).is_absolute():
            folder = Path(node.anchor.file).parent
            found[project_root(folder) or folder] = None
    return [folder for folder in found if (folder / PROJECT_MARKER).exists() or folder != Path.home()]


def _is_path_here(text: str) -> bool:
    if not text.startswith("/") or len(text) > _LONGEST or "\n" in text or "\0" in text or _is_common(text):
        return False
    try:
        return os.path.lexists(text)
    except (OSError, ValueError):
        return False


def _is_common(text: str) -> bool:
    path = text.rstrip("/") or "/"
    return (
        path in _ANYWHERE
        or path.startswith((sys.prefix, sys.base_prefix))
        or any(path == one or path.startswith(f"{one}/") for one in _OF_EVERY_MACHINE)
    )
