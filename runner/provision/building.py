"""Wheels for what a resolution has as sources alone: built by their own code, each in a place of its own.

Comes in: a resolution. Goes out: the same with a wheel of this machine in the place of each source. What a build
leaves is taken in by this process: one wheel of the right name, version and kind, of bounded size. It is kept by all
that it was made from, so the next venv with the same source needs no build, and no other source had a hand in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from runner.errors import BuildError
from runner.provision.diagnosis import Failure, InstallerFailedError, bare_name
from runner.provision.installer import Installer
from runner.provision.intake import kept, take_in
from runner.provision.lock import markers
from runner.provision.pip import wheel_tags
from runner.provision.place import MisplacedFileError
from runner.provision.refusals import needs_network_to_build
from runner.provision.resolution import Resolution
from runner.provision.workspace import Workspace
from runner.sandbox.disk import remove
from runner.text import one_line

FORMAT: Final = 1
"""Part of every key: raised when wheels built by an older release must not be used by a newer one."""


async def built(resolution: Resolution, installer: Installer, space: Workspace) -> Resolution:
    """Return a resolution in which all that this machine needs has a wheel.

    Raises:
        InstallerFailedError: something could not be built, or its build left no fitting wheel.
        InstallTimeoutError: a deadline passed.
    """
    if space.options.only_binary:
        return resolution
    environment = dict(markers(space.interpreter.series, version=space.interpreter.version))
    tags = frozenset(wheel_tags(space.interpreter.series))
    entries, changed = [], False
    for entry in resolution.data.get("packages", ()):
        marker = str(entry.get("marker", ""))
        if _is_source(entry, tags) and (not marker or Marker(marker).evaluate(environment)):
            entry, changed = await _built(entry, installer, space, tags), True
        entries.append(entry)
    return Resolution.from_data({**resolution.data, "packages": entries}) if changed else resolution


async def _built(
    entry: Mapping[str, Any], installer: Installer, space: Workspace, tags: AbstractSet[Tag]
) -> Mapping[str, Any]:
    name, version = canonicalize_name(str(entry["name"])), str(entry.get("version", ""))
    source = _source(entry)
    folder = space.cache.built_dir / _key(source, installer, space) if source is not None else None
    wheel = await asyncio.to_thread(kept, folder, space.cache) if folder is not None else None
    if wheel is None:
        if space.options.offline and not _is_here(entry, space):
            raise InstallerFailedError(needs_network_to_build([f"{name}=={version}" if version else name], space))
        space.progress.tell("build", f"building {name} {version}".rstrip())
        place, left = await installer.build(entry)
        # for what has no lasting name, as long as this build takes
        folder = folder or space.scratch / f"built-{place.given.parent.name}"
        try:
            wheel = await asyncio.to_thread(take_in, left, place.work, name, version, tags, folder, space.cache)
        except MisplacedFileError as error:
            raise InstallerFailedError(_bad_wheel(name, version, str(error))) from error
        await asyncio.to_thread(remove, str(place.given.parent))
    file = {"name": wheel.path.name, "path": str(wheel.path), "hashes": {"sha256": wheel.digest}}
    return {"name": name, "version": wheel.version, "wheels": [file]}


def _bad_wheel(name: str, version: str, reason: str) -> Failure:
    what = f"{name}=={version}" if version else name
    return Failure(
        "build",
        BuildError(
            f"build failed: {what!r} left no usable wheel: {one_line(reason)}.",
            hint="Ask for a version that has a wheel for this Python.",
        ),
        frozenset({bare_name(name)}),
    )


# -- what is a source, and what it is known by ----------------------------------------------------------------


def _is_source(entry: Mapping[str, Any], tags: AbstractSet[Tag]) -> bool:
    if any(_fits(_file_name(file), tags) for file in entry.get("wheels", ())):
        return False
    if "archive" in entry:
        return not _file_name(entry["archive"]).endswith(".whl")
    return bool({"vcs", "directory", "sdist"} & entry.keys())


def _fits(name: str, tags: AbstractSet[Tag]) -> bool:
    try:
        return not parse_wheel_filename(name)[3].isdisjoint(tags)
    except InvalidWheelFilename:
        return False


def _file_name(file: Mapping[str, Any]) -> str:
    return unquote(urlsplit(str(file.get("url", ""))).path or str(file.get("path", ""))).rpartition("/")[2]


def _is_here(entry: Mapping[str, Any], space: Workspace) -> bool:
    """Whether the source is a file or folder of this machine."""
    file = entry.get("sdist") or entry.get("archive") or {}
    here = {path.name for folder in space.options.link_folders for path in folder.iterdir()}
    return "directory" in entry or "path" in file or _file_name(file) in here


def _source(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a source is known by, whatever its address; `None` for one that may change."""
    file = entry.get("sdist") or entry.get("archive")
    if "vcs" in entry:
        vcs = entry["vcs"]
        return {key: vcs.get(key) for key in ("type", "url", "path", "commit-id", "subdirectory")}
    if not file or not file.get("hashes"):
        return None
    return {"hashes": dict(file["hashes"]), "subdirectory": file.get("subdirectory")}


def _key(source: Mapping[str, Any], installer: Installer, space: Workspace) -> str:
    inputs = {
        "format": FORMAT,
        "source": source,
        "interpreter": space.interpreter.identity(),
        # where what a build needs comes from, and who sees to it
        "packages": space.options.key_inputs(),
        "installer": installer.title.partition(" ")[0],
        # what was built without a sandbox is nothing for those who want one
        "sandbox": space.confinement.policy.level,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("ascii")).hexdigest()[:32]
