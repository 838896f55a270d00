"""What can be told of a bundle before anything of it runs: its files, its secrets, and what its pickle would do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from benchmax.bundle import Bundle
from runner.artifact import METADATA_NAME, PICKLE_NAME, Artifact, read_artifact
from runner.errors import ArtifactError
from runner.inspecting import Overview, inspect_pickle
from runner.inspecting.bounds import MAX_METADATA_BYTES, MAX_PICKLE_BYTES
from runner.validation.contents import Contents
from runner.validation.ledger import Ledger
from runner.validation.plan import ValidationPlan
from runner.validation.secrets import find_secrets

BUNDLE_AGAIN = "Bundle the environment again, and upload what `benchmax bundle` wrote."


class StoppedError(Exception):
    """Raised where the checks that are left cannot be made.

    Args:
        why: Why not.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Looked:
    """A bundle that was looked at.

    Args:
        artifact: The bundle.
        overview: What loading its pickle would do.
        contents: What is in its pickle.
    """

    artifact: Artifact
    overview: Overview
    contents: Contents

    def check(self) -> None:
        """Refuse to have it loaded.

        Raises:
            StoppedError: that fails, or does what no packing of an environment asks for.
        """
        if self.overview.broken or self.overview.dangers:
            raise StoppedError("it is not loaded, for what its pickle is")


async def look(source: Bundle | Artifact | Path | str, plan: ValidationPlan, ledger: Ledger) -> Looked:
    """Read a bundle and look at it.

    Raises:
        StoppedError: it cannot be read.
        UsageError: the folder or a file of the artifact is missing.
    """
    with ledger.checking("artifact"):
        try:
            artifact = await asyncio.to_thread(_read, source)
        except ArtifactError as error:
            ledger.add("artifact", "its files", error.message, error.hint or BUNDLE_AGAIN)
            raise StoppedError("its files cannot be read") from None
        overview = await asyncio.to_thread(inspect_pickle, artifact.bundle.pickled)
        if overview.broken:
            ledger.add("broken-pickle", PICKLE_NAME, f"loading it fails: {overview.broken}", BUNDLE_AGAIN)
        if overview.dangers:
            first, more = overview.dangers[0], len(overview.dangers) - 1
            message = f"it {first.message}{f', and {more} more of this kind' if more else ''}"
            ledger.add("dangerous-pickle", PICKLE_NAME, message, "Find out who made it; `benchmax inspect` shows all.")
    with ledger.checking("secrets"):
        contents = await asyncio.to_thread(Contents, artifact.bundle.pickled)
        found = await asyncio.to_thread(lambda: [*find_secrets(artifact, overview, contents, plan.secrets)])
        ledger.extend(found)
    return Looked(artifact, overview, contents)


def _read(source: Bundle | Artifact | Path | str) -> Artifact:
    if isinstance(source, Bundle | Artifact):
        return Artifact.of(source)
    # what was uploaded may be of any size
    return read_artifact(Path(source), most={METADATA_NAME: MAX_METADATA_BYTES, PICKLE_NAME: MAX_PICKLE_BYTES})
