"""What the files of a data folder were when a run was recorded, and which of them have changed since.

Not looked at is what belongs to no dataset: folders whose name begins with a dot and `__pycache__`, records, the files
of the artifact, and what is written while the dataset is made, such as somebody's log. What has been added since is no
change: the ids of the examples tell whether it matters.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from runner.artifact import FACTS_NAME, METADATA_NAME, PICKLE_NAME
from runner.errors import UsageError
from runner.limits import Limits
from runner.provision import LOCK_NAME
from runner.text import one_line

RECORD_NAME: Final = "record.json"
OUTCOMES_NAME: Final = "outcomes.jsonl"
"""The files by which a folder is known to be a record."""

ARTIFACT_NAMES: Final = (PICKLE_NAME, METADATA_NAME, FACTS_NAME, LOCK_NAME)

NAMED_CHANGES: Final = 5
"""Files that are named in an error; with more the first and their number help as much."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file: bytes, and SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


def data_facts(root: Path, *, limits: Limits, leave_out: Iterable[Path] = ()) -> dict[str, FileFacts]:
    """Return what the files of a data folder are, by their path below it.

    Args:
        root: The folder.
        limits: `data_files` and `data_bytes` bound what is looked at.
        leave_out: Files that the run itself will write; its standard streams are left out in any case.

    Raises:
        UsageError: there is more than that, or a file cannot be read.
    """
    found: dict[str, FileFacts] = {}
    rest = limits.data_bytes
    written = {identity for path in leave_out if (identity := _identity(path)) is not None}
    written |= {(status.st_dev, status.st_ino) for number in (1, 2) if (status := _descriptor(number)) is not None}
    for name, path in _files(root):
        if _identity(path) in written:
            continue
        facts = file_facts(path)
        rest -= facts.size
        found[name] = facts
        if len(found) > limits.data_files or rest < 0:
            bound = f"{limits.data_files} files" if rest >= 0 else f"{limits.data_bytes} bytes"
            raise UsageError(
                f"the data folder {root} holds more than {bound}, and each of its files is part of a record.",
                hint="Give --data the folder that holds the environment's data files and nothing else.",
            )
    return found


def still(root: Path, facts: Mapping[str, FileFacts], *, since: float) -> dict[str, FileFacts]:
    """Return those files that nobody has written.

    Args:
        root: The folder.
        facts: What `data_facts` said of it.
        since: When it did, in seconds since 1970.
    """
    there = dict(_files(root))
    return {name: found for name, found in facts.items() if name in there and there[name].stat().st_mtime < since}


def check_data(root: Path, recorded: Mapping[str, FileFacts]) -> None:
    """Check that a data folder still holds what it did when a run was recorded.

    Args:
        root: The folder.
        recorded: What `data_facts` said then.

    Raises:
        UsageError: files are missing or have changed; the text names them.
    """
    there = dict(_files(root))
    changes = [
        f"{one_line(name)} ({reason})"
        for name, facts in recorded.items()
        if (reason := _change(there.get(name), facts))
    ]
    if changes:
        more = f" and {len(changes) - NAMED_CHANGES} more" if len(changes) > NAMED_CHANGES else ""
        raise UsageError(
            f"data files in {root} are not what they were when the run was recorded: "
            f"{', '.join(changes[:NAMED_CHANGES])}{more}.",
            hint=f"Say where the recorded ones are now with --data. What is no data can be struck from {RECORD_NAME}.",
        )


def _change(path: Path | None, recorded: FileFacts) -> str:
    if path is None:
        return "missing"
    now = file_facts(path)
    if now == recorded:
        return ""
    return "changed" if now.size == recorded.size else f"{recorded.size} bytes then, {now.size} now"


def file_facts(path: Path) -> FileFacts:
    """Return what a file is.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return FileFacts(size=file.tell(), sha256=digest.hexdigest())
    except OSError as error:
        raise _unreadable(path, error) from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _descriptor(number: int) -> os.stat_result | None:
    try:
        return os.fstat(number)
    except OSError:
        # closed by whoever started this process
        return None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path}, which belongs to the data folder, cannot be read: {error.strerror}.",
        hint="Give --data the folder that holds the environment's data files and nothing else.",
    )


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Give the regular files below a folder and their names, in an order that is always the same."""

    def fail(error: OSError) -> None:
        raise _unreadable(Path(str(error.filename)), error) from error

    seen: set[tuple[int, int]] = set()
    for folder, inner, files in os.walk(root, followlinks=True, onerror=fail):
        status = os.stat(folder)  # noqa: PTH116 - there may be very many
        if (status.st_dev, status.st_ino) in seen or {RECORD_NAME, OUTCOMES_NAME} <= {*files}:
            # a link back up; or a record, which may be the one that is being made
            inner.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__pycache__")
        artifact = PICKLE_NAME in files and METADATA_NAME in files
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file() and not (artifact and name in ARTIFACT_NAMES):
                yield _shown(path.relative_to(root)), path


def _shown(path: Path) -> str:
    """A path as text that JSON can carry, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
