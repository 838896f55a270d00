"""The files that a job works on, brought from the blob store into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from runner.artifact import METADATA_NAME, PICKLE_NAME
from runner.service.blobs.store import BlobStore

PICKLE: Final = "pickle"
METADATA: Final = "metadata"
DATA: Final = "data/"
"""Roles of a job's blobs; the last is followed by a file's path in the data folder."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where they are.

    Args:
        artifact: Folder of the artifact.
        data: Folder for `create_dataset`; empty where there are no files.
    """

    artifact: Path
    data: Path


async def fetch_inputs(blobs: BlobStore, digests: Mapping[str, str], folder: Path) -> Inputs:
    """Bring a job's files.

    Args:
        blobs: Where they are.
        digests: Digest by role.
        folder: Where they go.

    Raises:
        ValueError: a path leads out of the data folder.
        BlobError: one is not there, or is not what it was.
    """
    inputs = Inputs(folder / "artifact", folder / "data")
    for made in (inputs.artifact, inputs.data):
        made.mkdir()
    names = {PICKLE: inputs.artifact / PICKLE_NAME, METADATA: inputs.artifact / METADATA_NAME}
    for role, digest in digests.items():
        path = names.get(role) or _below(inputs.data, role)
        path.parent.mkdir(parents=True, exist_ok=True)
        await blobs.fetch(digest, path)
    return inputs


def _below(folder: Path, role: str) -> Path:
    relative = PurePosixPath(role.removeprefix(DATA))
    if not role.startswith(DATA) or relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise ValueError(f"a job has a file in the role {role!r}, which has no place")
    return folder / relative
