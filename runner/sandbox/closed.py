"""Folders that another user cannot enter, and what below them it needs all the same.

Comes in: paths that a process is to use, and the user it will be. Goes out: the outermost closed folder above each
path, so that a mount of its own can stand in for it. Looks at modes, changes none.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path


def closed_folders(paths: Iterable[str], uid: int) -> dict[str, tuple[str, ...]]:
    """Map each folder that `uid` cannot enter to the paths below it, sorted.

    Args:
        paths: Absolute, without symbolic links in them.
        uid: A user without groups or capabilities.

    Raises:
        OSError: a path does not exist.
    """
    found: dict[str, set[str]] = {}
    entered: dict[Path, bool] = {}
    for path in paths:
        for folder in reversed(Path(path).parents):
            if folder not in entered:
                entered[folder] = _can_enter(folder, uid)
            if not entered[folder]:
                found.setdefault(str(folder), set()).add(path)
                break
    return {folder: tuple(sorted(below)) for folder, below in sorted(found.items())}


def without_inner(paths: Iterable[str]) -> tuple[str, ...]:
    """Leave out paths that are below another one of them.

    Args:
        paths: Absolute, without a slash at their end.
    """
    kept: list[str] = []
    # as text: a path object takes a hundred times as long, at every start of a worker
    for path in sorted(set(paths), key=len):
        if not any(path.startswith(f"{outer.rstrip('/')}/") for outer in kept):
            kept.append(path)
    return tuple(sorted(kept))


def _can_enter(folder: Path, uid: int) -> bool:
    # no access control lists: what they add is missed, and the folder is then shown by a mount, which does no harm
    status = folder.stat()
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    return bool(status.st_mode & stat.S_IXOTH)
