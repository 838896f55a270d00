"""The folder of a record: made new, claimed by one run at a time, and read.

Comes in: a path. Goes out: the record's files, decoded. Refuses: a folder that holds anything when a record is to be
made, one that is no record when it is to be read, and one that another run is writing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Final, Self

import msgspec

from benchmax.bundle import BundleMetadata
from runner.artifact import FACTS_NAME, METADATA_NAME, Artifact, read_artifact, write_artifact, write_atomically
from runner.errors import RunnerError, UsageError
from runner.provision import LOCK_NAME
from runner.recording.data import OUTCOMES_NAME, RECORD_NAME
from runner.recording.facts import FORMAT, OutcomeLine, RecordFacts
from runner.recording.journal import Journal, Lines
from runner.recording.traffic import RecordedCall
from runner.report.value import Report
from runner.text import printable_json

ARTIFACT_NAME: Final = "artifact"
CALLS_NAME: Final = "calls.jsonl"
REPORT_NAME: Final = "report.json"
_OURS: Final = (ARTIFACT_NAME, LOCK_NAME, RECORD_NAME, OUTCOMES_NAME, CALLS_NAME, REPORT_NAME)


class RecordFolder:
    """A record on disk. Make one with `create` or `open`.

    Args:
        path: The folder.
        claim: Descriptor that holds the claim to write to it; -1 for one that is only read.
        made: Whether the folder itself was made by this run.
    """

    def __init__(self, path: Path, *, claim: int = -1, made: bool = False) -> None:
        self.path = path
        self._claim = claim
        self._made = made

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make a folder for a new record, or take an empty one, and claim it.

        Raises:
            UsageError: something is in it, another run has claimed it, or it cannot be made.
        """
        made = not path.exists()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            claim = _claimed(path)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise UsageError(f"cannot record to {path}: it is not a folder.", hint="Name a new one.") from error
            raise UsageError(f"cannot record to {path}: {error.strerror}.", hint="Name another folder.") from error
        folder = cls(path, claim=claim, made=made)
        try:
            if {*_OURS} & {*(there := os.listdir(path))}:  # noqa: PTH208 - names are wanted
                raise UsageError(
                    f"{path} holds a record already.",
                    hint=f"Name a new folder, or go on with that run: benchmax run --resume {path}.",
                )
            if there:
                raise UsageError(f"cannot record to {path}: it is not empty.", hint="Name a new folder.")
            # what models are asked and answer may be meant for nobody else
            os.fchmod(claim, 0o700)
        except OSError as error:
            folder.close()
            raise UsageError(f"cannot record to {path}: {error.strerror}.", hint="Name another folder.") from error
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def open(cls, path: Path, *, claim: bool) -> Self:
        """Take the folder of a record.

        Args:
            path: The folder.
            claim: Whether it is to be written.

        Raises:
            UsageError: it is no record, or another run writes it.
        """
        if not path.is_dir():
            raise UsageError(
                f"no record at {path}: {'not a folder' if path.exists() else 'no such folder'}.",
                hint="Give the folder that `benchmax run --record` made.",
            )
        if not (path / RECORD_NAME).is_file():
            raise UsageError(
                f"{path} is no record: it holds no {RECORD_NAME}.",
                hint="Give the folder that `benchmax run --record` made.",
            )
        try:
            return cls(path, claim=_claimed(path) if claim else -1)
        except OSError as error:
            raise UsageError(f"cannot open the record {path}: {error.strerror}.") from error

    def close(self) -> None:
        """Give the claim back; harmless twice."""
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1

    def discard(self) -> None:
        """Remove what was made, for a run that has nothing to show."""
        for name in _OURS:
            path = self.path / name
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    # -- files --------------------------------------------------------------------------------------------

    @property
    def lock(self) -> Path:
        """The lock that packages are installed from."""
        return self.path / LOCK_NAME

    @property
    def outcomes(self) -> Lines[OutcomeLine]:
        """How rollouts ended, in order."""
        return Lines(self.path / OUTCOMES_NAME, OutcomeLine)

    @property
    def calls(self) -> Lines[RecordedCall]:
        """Model calls, in the order in which they ended."""
        return Lines(self.path / CALLS_NAME, RecordedCall)

    def write_outcomes(self) -> Journal:
        """Open the outcomes, each an `OutcomeLine`, to append to them.

        Raises:
            RunnerError: they cannot be opened.
        """
        return self._journal(OUTCOMES_NAME)

    def write_calls(self) -> Journal:
        """Open the calls, each a `RecordedCall`, to append to them.

        Raises:
            RunnerError: they cannot be opened.
        """
        return self._journal(CALLS_NAME)

    def read_facts(self) -> RecordFacts:
        """Read what the record is of.

        Raises:
            UsageError: it cannot be read, or is of a later release.
        """
        try:
            data = (self.path / RECORD_NAME).read_bytes()
            version = msgspec.json.decode(data, type=_Format).format
            if version > FORMAT:
                raise UsageError(
                    f"the record {self.path} has format {version}, and this benchmax reads up to {FORMAT}.",
                    hint="Use the benchmax that made it, or a newer one.",
                )
            return msgspec.json.decode(data, type=RecordFacts)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{self.path / RECORD_NAME} is broken: {error}.", hint="Record the run again.") from error
        except OSError as error:
            raise UsageError(f"cannot read {self.path / RECORD_NAME}: {error.strerror}.") from error

    def write_facts(self, facts: RecordFacts) -> None:
        """Write what the record is of; readers see all of it or what was there before.

        Raises:
            RunnerError: it cannot be written.
        """
        # it may well be printed on a terminal
        self._write(RECORD_NAME, printable_json(msgspec.json.format(msgspec.json.encode(facts), indent=1)) + b"\n")

    def write_artifact(self, artifact: Artifact) -> None:
        """Keep an artifact, byte for byte.

        Raises:
            RunnerError: it cannot be written.
        """
        target = self.path / ARTIFACT_NAME
        try:
            facts = _bytes_of(artifact, FACTS_NAME)
            write_artifact(artifact.bundle, target, facts=facts)
            metadata = _bytes_of(artifact, METADATA_NAME)
            if metadata is not None and BundleMetadata.from_json_bytes(metadata) == artifact.bundle.metadata:
                # as it was written, with what this release does not know of
                write_atomically(target / METADATA_NAME, metadata)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def read_artifact(self, digest: str) -> Artifact:
        """Read the artifact.

        Raises:
            UsageError: it is not there, or not the one that was recorded.
            ArtifactError: its metadata is broken.
        """
        artifact = read_artifact(self.path / ARTIFACT_NAME)
        if artifact.digest != digest:
            raise UsageError(
                f"the artifact in {self.path} has the digest {artifact.digest}, and {digest} was recorded.",
                hint="Record the run again.",
            )
        return artifact

    def write_lock(self, text: str) -> None:
        """Keep the lock.

        Raises:
            RunnerError: it cannot be written.
        """
        self._write(LOCK_NAME, text.encode())

    def read_report(self) -> Report | None:
        """Read the report; `None` when the run was ended before it could write one.

        Raises:
            UsageError: it cannot be read.
        """
        path = self.path / REPORT_NAME
        try:
            return Report.from_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is broken: {error}.", hint="Resume the run: that makes it anew.") from error
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from error

    def write_report(self, report: Report) -> None:
        """Write the report; readers see all of it or what was there before.

        Raises:
            RunnerError: it cannot be written.
        """
        self._write(REPORT_NAME, report.to_json())

    def remove_report(self) -> None:
        """Remove the report of an earlier attempt: until this one has its own, there is none."""
        (self.path / REPORT_NAME).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        try:
            write_atomically(self.path / name, data)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _journal(self, name: str) -> Journal:
        try:
            return Journal(self.path / name)
        except OSError as error:
            raise _unwritable(self.path, error) from error


class _Format(msgspec.Struct):
    format: int


def _claimed(path: Path) -> int:
    """Hold a folder for writing; given back when the descriptor is closed, or the process ends in whatever way."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"another run is writing the record {path}.", hint="Wait for its end, or end it.") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _bytes_of(artifact: Artifact, name: str) -> bytes | None:
    path = None if artifact.path is None else artifact.path / name
    return path.read_bytes() if path is not None and path.is_file() else None


def _unwritable(path: Path, error: OSError) -> RunnerError:
    return RunnerError(
        f"cannot write the record {path}: {error.strerror}.", hint="Make room there, or record to another folder."
    )
