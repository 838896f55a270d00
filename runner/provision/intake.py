"""Takes in the wheel that a build left: one of the right name, version and kind, of bounded size.

Comes in: folders into which code of packages has written, and nobody does any more. Goes out: a copy of the wheel where
only this process writes, with its digest. Nothing in those folders is followed, changed or trusted.
"""

from __future__ import annotations

import email.parser
import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from runner.limits import BUILT_FILES, BUILT_WHEEL_BYTES, MIB
from runner.provision.cache import Cache
from runner.provision.place import MisplacedFileError, open_inside

METADATA_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class BuiltWheel:
    """A wheel that was taken in.

    Args:
        path: Where it is now.
        version: As its name and its metadata say it.
        digest: SHA-256 of its bytes.
    """

    path: Path
    version: str
    digest: str


def kept(folder: Path, cache: Cache) -> BuiltWheel | None:
    """Return the wheel that was taken into a folder, if there is one; an installer checks its digest."""
    record = cache.read_json(folder / "wheel.json")
    if not isinstance(record, dict):
        return None
    facts = [record.get(key) for key in ("file", "version", "sha256")]
    if not all(isinstance(fact, str) for fact in facts):
        return None
    wheel = BuiltWheel(folder / str(facts[0]), str(facts[1]), str(facts[2]))
    return wheel if wheel.path.is_file() else None


def take_in(
    left: Path, work: Path, name: str, version: str, tags: AbstractSet[Tag], folder: Path, cache: Cache
) -> BuiltWheel:
    """Copy the wheel of a package out of what its build left, whose whole tree is gone, and check it on the way.

    Args:
        left: Folder below which the wheel is.
        work: The folder that the build could write, with `left` in it; nothing is followed out of it.
        name: Canonical name of the package.
        version: Its version; empty where only its build can tell it.
        tags: What its wheel may be tagged with.
        folder: Where it is kept.
        cache: For errors, and for the record beside it.

    Raises:
        MisplacedFileError: there is no such wheel; the text says what there is instead.
        CacheError: it cannot be written.
    """
    try:
        return _taken_in(left, work, name, version, tags, folder, cache)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        # all that reading a broken archive, or folders that are nested without end, can raise
        raise MisplacedFileError(f"it cannot be read: {error}") from error


def _taken_in(
    left: Path, work: Path, name: str, version: str, tags: AbstractSet[Tag], folder: Path, cache: Cache
) -> BuiltWheel:
    found = _wheels(left)
    reasons = []
    for file in found:
        try:
            wheel_name, wheel_version, _, wheel_tags_ = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if wheel_name != name:
            continue
        if version and not _same(str(wheel_version), version):
            reasons.append(f"{file.name} is not version {version}")
        elif wheel_tags_.isdisjoint(tags):
            reasons.append(f"{file.name} is for another Python or machine")
        else:
            return _copied(file, work, str(wheel_version), name, folder, cache)
    raise MisplacedFileError("; ".join(reasons) or "there is none of that name")


def _copied(file: Path, work: Path, version: str, name: str, folder: Path, cache: Cache) -> BuiltWheel:
    with os.fdopen(open_inside(file, work), "rb") as stream:
        if os.fstat(stream.fileno()).st_size > BUILT_WHEEL_BYTES:
            raise MisplacedFileError(f"{file.name} is larger than {BUILT_WHEEL_BYTES // MIB} MiB")
        _check_metadata(stream, name, version)
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        place = folder / digest[:16]
        with cache.boundary():
            place.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=place, prefix=".new-")
            with os.fdopen(descriptor, "wb") as copy:
                shutil.copyfileobj(stream, copy, MIB)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(place / file.name)
    record = {"file": f"{place.name}/{file.name}", "version": version, "sha256": digest}
    cache.write_json(folder / "wheel.json", record)
    return BuiltWheel(place / file.name, version, digest)


def _wheels(folder: Path) -> Iterator[Path]:
    """List wheels below a folder, following no links; only so much of it is looked at."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            seen += 1
            if name.endswith(".whl"):
                yield Path(place, name)
        seen += len(folders)
        if seen > BUILT_FILES:
            raise MisplacedFileError(f"there are more than {BUILT_FILES} files to look through")


def _check_metadata(stream: IO[bytes], name: str, version: str) -> None:
    with zipfile.ZipFile(stream) as archive:
        inner = [entry for entry in archive.infolist() if entry.filename.endswith(".dist-info/METADATA")]
        own = [entry for entry in inner if entry.filename.count("/") == 1]
        if len(own) != 1 or own[0].file_size > METADATA_BYTES:
            raise MisplacedFileError("it does not have one METADATA of usual size")
        with archive.open(own[0]) as text:
            said = email.parser.BytesHeaderParser().parsebytes(text.read(METADATA_BYTES))
    if canonicalize_name(str(said["Name"])) != name or not _same(str(said["Version"]), version):
        raise MisplacedFileError("its METADATA has another name or version than its file")


def _same(one: str, another: str) -> bool:
    try:
        return Version(one) == Version(another)
    except InvalidVersion:
        return one == another
