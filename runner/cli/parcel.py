"""What `benchmax submit` uploads: the two files of an artifact, and the files of a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydantic import TypeAdapter, ValidationError

from runner.artifact import METADATA_NAME, PICKLE_NAME, read_artifact
from runner.errors import ArtifactError, UsageError
from runner.service.client import ServiceClient
from runner.service.client.wire import (
    MAX_FILES,
    MAX_PATH_CHARS,
    ArtifactUploads,
    DataFile,
    NewValidation,
    RelativePath,
    ValidationOptions,
)
from runner.text import one_line

AT_ONCE: Final = 4
TOLD_EVERY_S: Final = 5.0
NAME_CHARS: Final = 200
LONGEST_NAME: Final = MAX_PATH_CHARS - 50
"""Of a data file, which is uploaded below a folder of its submission."""

_PATH: Final = TypeAdapter[str](RelativePath)

Tell = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files to upload.

    Args:
        name: What the validation is called.
        artifact: The artifact's folder.
        data: Files of the data folder, by where they are in it.
        hidden: Files and folders that were left out because their names begin with a dot.
    """

    name: str
    artifact: Path
    data: dict[str, Path]
    hidden: int

    @classmethod
    def of(cls, artifact: Path, data: Path | None, *, name: str | None) -> Self:
        """Find what is to be uploaded; nothing of it is executed.

        Raises:
            UsageError: the artifact or the data is not there, or a file has a name that the service does not take.
        """
        # what is wrong with its content is for the service to say, which has findings for it
        with contextlib.suppress(ArtifactError):
            read_artifact(artifact)
        files, hidden = ({}, 0) if data is None else _files_below(data)
        called = name if name is not None else artifact.resolve().name
        return cls(one_line(called, NAME_CHARS) or "unnamed", artifact, files, hidden)

    async def upload(self, client: ServiceClient, options: ValidationOptions, tell: Tell) -> NewValidation:
        """Upload everything, and return what asks for the validation.

        Args:
            client: The service's.
            options: How it is to be judged.
            tell: Told how far it is, as phase and text.

        Raises:
            UsageError: a file cannot be read.
            ClientError: one was not taken.
        """
        counter = _Counter(sum(self._size(path) for path in self._paths()), len(self._paths()), tell)
        one_of_few = asyncio.Semaphore(AT_ONCE)

        place = f"submissions/{secrets.token_hex(8)}"

        async def send(name: str, path: Path) -> str:
            async with one_of_few:
                mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
                try:
                    return await client.upload(f"{place}/{name}", path, mime=mime, on_bytes=counter.add)
                except OSError as error:
                    raise UsageError(f"cannot read {path}: {error.strerror}.") from error

        try:
            async with asyncio.TaskGroup() as group:
                pickle = group.create_task(send(PICKLE_NAME, self.artifact / PICKLE_NAME))
                metadata = group.create_task(send(METADATA_NAME, self.artifact / METADATA_NAME))
                data = {name: group.create_task(send(f"data/{name}", path)) for name, path in self.data.items()}
        except ExceptionGroup as failed:
            # the others were cancelled for its sake
            raise failed.exceptions[0] from None
        counter.done()
        return NewValidation(
            name=self.name,
            artifact=ArtifactUploads(pickle=pickle.result(), metadata=metadata.result()),
            files=[DataFile(path=name, upload=task.result()) for name, task in data.items()],
            options=options,
        )

    def _paths(self) -> list[Path]:
        return [self.artifact / PICKLE_NAME, self.artifact / METADATA_NAME, *self.data.values()]

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from error


class _Counter:
    """Tells now and then how much was sent."""

    def __init__(self, total: int, files: int, tell: Tell) -> None:
        self._total = total
        self._tell = tell
        self._sent = 0
        self._what = f"{files} files, {total:,} bytes"
        self._told = time.monotonic()
        tell("upload", self._what)

    def add(self, count: int) -> None:
        self._sent += count
        now = time.monotonic()
        if now - self._told >= TOLD_EVERY_S:
            self._told = now
            self._tell("upload", f"{self._sent * 100 // max(1, self._total)} % of {self._what}")

    def done(self) -> None:
        self._tell("upload", f"all of {self._what}")


def _files_below(folder: Path) -> tuple[dict[str, Path], int]:
    """Return the files of a folder by their relative paths, and how much of it is hidden."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(
            f"the dataset path {folder} {what}.", hint="Give --data the folder that the environment reads."
        )
    found: dict[str, Path] = {}
    hidden = 0
    for place, folders, names in os.walk(folder):
        hidden += sum(name.startswith(".") for name in [*folders, *names])
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place) / name
            if name.startswith("."):
                continue
            relative = path.relative_to(folder).as_posix()
            if not path.is_file():
                raise UsageError(f"{path} is not a regular file.", hint="Move it out of the data folder.")
            if not _is_taken(relative):
                raise UsageError(
                    f"the service takes no file of the name {relative!r}.",
                    hint=f"Rename it: at most {LONGEST_NAME} printable characters.",
                )
            found[relative] = path
    if len(found) > MAX_FILES:
        raise UsageError(
            f"{folder} has {len(found):,} files, and a service takes {MAX_FILES:,}.",
            hint="Give a folder with the environment's data alone, or fewer and larger files.",
        )
    return found, hidden


def _is_taken(relative: str) -> bool:
    try:
        _PATH.validate_python(relative)
    except ValidationError:
        return False
    return len(relative) <= LONGEST_NAME
