"""What a finished venv consists of, so that a change to it is found later.

Comes in: a venv's folder. Goes out: a list of its files with sizes and times, and digests of what no package's own
record covers; and, given such a list, what is no longer as it was. Nothing of the venv is executed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CONTENTS_FORMAT: Final = 1
WRITE_BITS: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a venv, by their paths relative to it.

    Args:
        files: Regular files: size in bytes and time of modification in nanoseconds.
        links: Symbolic links and where they lead.
        digests: SHA-256 of the files that no package records rightly; the packages' records themselves are among them.
    """

    files: Mapping[str, tuple[int, int]]
    links: Mapping[str, str]
    digests: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {
            "format": CONTENTS_FORMAT,
            "files": {path: list(facts) for path, facts in self.files.items()},
            "links": dict(self.links),
            "digests": dict(self.digests),
        }

    @classmethod
    def from_json(cls, content: Any) -> Contents:
        """Read what `to_json` gave.

        Raises:
            ValueError: it is something else.
        """
        try:
            if content["format"] != CONTENTS_FORMAT:
                raise ValueError(f"unknown format {content['format']!r}")
            files = {str(path): (int(size), int(time)) for path, (size, time) in content["files"].items()}
            return cls(files, dict(content["links"]), dict(content["digests"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a list of contents: {error}") from error

    @property
    def records(self) -> dict[str, list[int]]:
        """Size and time of the packages' records: a cheap sign that the packages are still there."""
        return {path: list(facts) for path, facts in self.files.items() if path.endswith(".dist-info/RECORD")}


def record(venv: Path) -> Contents:
    """List what a finished venv consists of, take the right to write from all of it, and let everybody read it.

    Its workers may be another user, and files that come out of an installer's cache have the modes of whoever filled
    it. A user with more rights, root above all, can write all the same, and an owner can give the right back: this
    stops accidents, such as an installer that is run inside the venv.

    Raises:
        OSError: something cannot be read or changed.
    """
    files: dict[str, tuple[int, int]] = {}
    links: dict[str, str] = {}
    for path, entry in _walk(venv):
        if entry.is_symlink():
            links[path] = os.readlink(entry.path)  # noqa: PTH115 - thousands, and given as text
            continue
        status = entry.stat(follow_symlinks=False)
        if entry.is_file(follow_symlinks=False):
            files[path] = (status.st_size, status.st_mtime_ns)
        if (mode := _closed(status.st_mode)) != stat.S_IMODE(status.st_mode):
            os.chmod(entry.path, mode)  # noqa: PTH101 - as above
    venv.chmod(_closed(venv.stat().st_mode))
    recorded = _recorded(venv, files)
    digests = {}
    for path, (size, _) in files.items():
        # a record that is wrong about a size is wrong about the digest
        if not any(given == size for _, given in recorded.get(path, ())):
            digests[path] = digest_of(venv / path)
    return Contents(files, links, digests)


def changes(venv: Path, contents: Contents, compiled: Mapping[str, str]) -> list[str]:
    """Say what of a venv is not as it was.

    Args:
        venv: The venv's folder.
        contents: What it consisted of when it was finished.
        compiled: Compiled files that were added since then, with their SHA-256.

    Returns:
        One line for each difference; none when there is none.

    Raises:
        OSError: a folder cannot be read.
    """
    found: list[str] = []
    there: dict[str, os.DirEntry[str]] = {}
    for path, entry in _walk(venv):
        if entry.is_symlink() or not entry.is_dir(follow_symlinks=False):
            there[path] = entry
    expected = {*contents.files, *contents.links, *compiled}
    found += [f"{path} was added" for path in sorted(there.keys() - expected)]
    found += [f"{path} is missing" for path in sorted(expected - there.keys())]
    for path, target in contents.links.items():
        if path in there and not (there[path].is_symlink() and str(Path(there[path].path).readlink()) == target):
            found.append(f"{path} is not the link it was")
    # the packages' own records count only if they are as they were
    intact = {
        path
        for path, wanted in contents.digests.items()
        if path in there and path.endswith("/RECORD") and _is(there[path], wanted)
    }
    recorded = _recorded(venv, intact)
    for path, (size, _) in contents.files.items():
        if path not in there or path in intact or path in compiled:
            continue
        entry = there[path]
        wanted = {contents.digests[path]} if path in contents.digests else {d for d, _ in recorded.get(path, ())}
        if not wanted:
            # what would say how it was is itself broken, and named
            continue
        if entry.is_symlink() or entry.stat(follow_symlinks=False).st_size != size or not _is(entry, *wanted):
            found.append(f"{path} was changed")
    found += [
        f"{path} was changed"
        for path, wanted_digest in compiled.items()
        if path in there and not _is(there[path], wanted_digest)
    ]
    return found


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _is(entry: os.DirEntry[str], *wanted: str) -> bool:
    if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
        return False
    try:
        return digest_of(Path(entry.path)) in wanted
    except OSError:
        # what cannot be read any more is not as it was
        return False


def _walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Give everything below a folder, folders before what is in them."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                yield path, entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")


def _closed(mode: int) -> int:
    everybody = 0o555 if mode & stat.S_IXUSR else 0o444
    return stat.S_IMODE(mode) & ~WRITE_BITS | everybody


def _recorded(venv: Path, paths: Mapping[str, object] | set[str]) -> dict[str, set[tuple[str, int]]]:
    """Read digests and sizes from the records of packages; files that several packages have keep all of them."""
    found: dict[str, set[tuple[str, int]]] = {}
    for path in paths:
        if not path.endswith(".dist-info/RECORD"):
            continue
        base = posixpath.dirname(posixpath.dirname(path))
        with (venv / path).open(encoding="utf-8", errors="surrogateescape", newline="") as rows:
            for row in csv.reader(rows):
                if len(row) < 3 or not row[1].startswith("sha256=") or not row[2].isascii() or not row[2].isdigit():
                    continue
                where = f"{base}/{row[0]}"
                if ".." in row[0]:
                    where = posixpath.normpath(where)
                digest = _hexadecimal(row[1].removeprefix("sha256="))
                if digest:
                    found.setdefault(where, set()).add((digest, int(row[2])))
    return found


def _hexadecimal(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
    except ValueError:
        return ""
