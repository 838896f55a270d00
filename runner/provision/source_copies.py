"""Copies of folders that packages are built in, since a build writes where its sources are.

Comes in: requirements or a lock that name folders of the caller's. Goes out: the same with copies in their place, in
the folder of a build, and what was resolved with the caller's own folders again. At level `off` there are no copies.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from runner.errors import RequirementError, UsageError
from runner.provision.place import Place
from runner.provision.sources import requirement_path
from runner.provision.workspace import Workspace
from runner.sandbox.data import copy_data


def with_copies(lines: Sequence[str], place: Place, space: Workspace) -> tuple[list[str], dict[str, str]]:
    """Put copies in the place of folders that requirements name; nothing is built elsewhere, so nothing is copied.

    Args:
        lines: PEP 508 requirements.
        place: Where they are resolved.
        space: The provisioning.

    Returns:
        The requirements, and the path of each copy with what it is a copy of.

    Raises:
        RequirementError: a folder cannot be copied.
    """
    changed, copies = [], dict[str, str]()
    for line in lines:
        folder = requirement_path(line) if _is_confined(place) else None
        if folder is not None and folder.is_dir():
            copy = _copied(folder, place, space)
            requirement = Requirement(line)
            requirement.url = copy.as_uri()
            line, copies[str(copy)] = str(requirement), str(folder)
        changed.append(line)
    return changed, copies


def without_copies(data: Mapping[str, Any], copies: Mapping[str, str]) -> dict[str, Any]:
    """Return a lock's content with the caller's own folders in the place of copies."""

    def original(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        folder = entry.get("directory")
        path = folder.get("path") if isinstance(folder, Mapping) else None
        if not isinstance(folder, Mapping) or not isinstance(path, str) or path not in copies:
            return entry
        return {**entry, "directory": {**folder, "path": copies[path]}}

    return {**data, "packages": [original(entry) for entry in data.get("packages", ())]}


def with_copied_folders(data: Mapping[str, Any], place: Place, space: Workspace) -> dict[str, Any]:
    """Put copies in the place of folders that a lock names.

    Raises:
        RequirementError: a folder cannot be copied.
    """

    def copied(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        folder = entry.get("directory")
        if not isinstance(folder, Mapping) or not _is_confined(place):
            return entry
        copy = _copied(Path(str(folder["path"])), place, space)
        return {**entry, "directory": {**folder, "path": str(copy)}}

    return {**data, "packages": [copied(entry) for entry in data["packages"]]}


def _is_confined(place: Place) -> bool:
    """Whether code of packages runs there, and cannot write where the sources are."""
    return place.builds and place.policy.level != "off"


def _copied(folder: Path, place: Place, space: Workspace) -> Path:
    staging = place.given.parent / "staging"
    # new, so that nothing that ran here before can have prepared it
    with space.cache.boundary():
        outer = place.work / f"source-{secrets.token_hex(4)}"
        outer.mkdir()
    target = outer / "of" / (folder.name or "source")
    try:
        copy_data(folder, target, staging=staging, uid=place.policy.uid, limits=space.limits)
        _make_executable(folder, target)
    except OSError as error:
        raise RequirementError(
            f"the folder {folder} cannot be copied for its build: {error.strerror or error}.",
            hint="Build a wheel of it and refer to that.",
        ) from error
    except UsageError as error:
        raise RequirementError(
            f"the folder {folder} is too large to be built: {error.message}",
            hint="Build a wheel of it and refer to that.",
        ) from error
    return target


def _make_executable(folder: Path, copy: Path) -> None:
    """Make executable what is in the original: a build may have programs of its own."""
    for place, _, names in os.walk(copy):
        for name in names:
            file = Path(place, name)
            if (folder / file.relative_to(copy)).stat().st_mode & stat.S_IXUSR:
                file.chmod(0o755)
