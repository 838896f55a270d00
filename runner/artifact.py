"""Artifacts on disk: `env-cls.pkl` beside `env-metadata.json`, read once and never unpickled here.

Comes in: a folder. Goes out: a `Bundle` and its digest. Refuses: a missing folder or file (the caller's mistake),
metadata that cannot be read and an empty pickle (the bundle's).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmax.bundle import Bundle, BundleMetadata, bundle_digest
from runner.errors import ArtifactError, UsageError

PICKLE_NAME: Final = "env-cls.pkl"
METADATA_NAME: Final = "env-metadata.json"
FACTS_NAME: Final = "env-facts.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A bundle as read from disk.

    Args:
        bundle: Pickle bytes and metadata.
        digest: SHA-256 hex of exactly these bytes, as `benchmax.bundle.bundle_digest` gives it.
        path: The folder it was read from, or `None` for a bundle in memory.
    """

    bundle: Bundle
    digest: str
    path: Path | None = None

    @classmethod
    def of(cls, source: Bundle | Artifact | Path | str) -> Artifact:
        """Accept a bundle in memory, an artifact, or the folder of one."""
        if isinstance(source, Artifact):
            return source
        if isinstance(source, Bundle):
            return cls(source, bundle_digest(source))
        return read_artifact(Path(source))


def read_artifact(folder: Path, *, most: Mapping[str, int] | None = None) -> Artifact:
    """Read an artifact without executing anything of it.

    Args:
        folder: The artifact's folder.
        most: Bytes to read at most, by the file's name; by default there is no limit.

    Raises:
        UsageError: the folder or one of its two files is missing.
        ArtifactError: the metadata cannot be read, the pickle is empty, or a file is larger than `most` says.
    """
    if not folder.is_dir():
        raise UsageError(
            f"no artifact at {folder}: {'not a folder' if folder.exists() else 'no such folder'}.",
            hint=f"Give the folder that holds {PICKLE_NAME} and {METADATA_NAME}, as `benchmax bundle` writes it.",
        )
    data: dict[str, bytes] = {}
    for name in (METADATA_NAME, PICKLE_NAME):
        try:
            data[name] = _read_file(folder / name, (most or {}).get(name))
        except FileNotFoundError:
            raise UsageError(
                f"{folder} holds no {name}.",
                hint=f"An artifact has {PICKLE_NAME} and {METADATA_NAME}; make one with `benchmax bundle`.",
            ) from None
        except OSError as error:
            raise UsageError(f"cannot read {folder / name}: {error.strerror}.") from error
    try:
        metadata = BundleMetadata.from_json_bytes(data[METADATA_NAME])
    except (ValueError, TypeError, RecursionError) as error:
        text = str(error)
        hint = "" if "re-bundle" in text.lower() else "Bundle the environment again."
        raise ArtifactError(f"{folder / METADATA_NAME} is broken: {text}", hint=hint) from error
    if not data[PICKLE_NAME]:
        raise ArtifactError(f"{folder / PICKLE_NAME} is empty.", hint="Bundle the environment again.")
    bundle = Bundle(data[PICKLE_NAME], metadata)
    return Artifact(bundle, bundle_digest(bundle), folder)


def _read_file(path: Path, most: int | None) -> bytes:
    # what an uploaded archive holds may be a device or a pipe, whose end never comes
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file.", hint="Give a folder as `benchmax bundle` writes it.")
    if most is None:
        return path.read_bytes()
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ArtifactError(
            f"{path} is larger than {most:,} bytes.", hint="Data belongs in files beside a bundle, not inside of it."
        )
    return data


def check_folder(folder: Path) -> None:
    """Find out before the work, not after it, that an artifact could not be written to a folder.

    Raises:
        UsageError: something else than a folder is in the way, or a folder is not writable.
    """
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise UsageError(
            f"cannot write the artifact to {folder}: {there} is not a folder.", hint="Choose another --out."
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"cannot write the artifact to {folder}: {there} is not writable.", hint="Choose another --out."
        )


def write_artifact(bundle: Bundle, folder: Path, *, facts: bytes | None = None) -> Artifact:
    """Write an artifact; each file appears whole or not at all.

    Args:
        bundle: What to write.
        folder: Where to.
        facts: What else is known of it, as JSON; everything works without. Facts of an earlier artifact go.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / PICKLE_NAME, bundle.pickled)
        write_atomically(folder / METADATA_NAME, bundle.metadata.to_json_bytes())
        if facts is not None:
            write_atomically(folder / FACTS_NAME, facts)
        else:
            (folder / FACTS_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the artifact to {folder}: {error.strerror}.", hint="Choose another --out."
        ) from error
    return Artifact(bundle, bundle_digest(bundle), folder)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that readers see its old content or its new one, never a part.

    Raises:
        OSError: as the operating system says; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # not by mkstemp: it makes files for the owner alone, and the umask can only be read by changing it
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
