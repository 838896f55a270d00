"""Whether a blob store is the one that a database speaks of: a folder of the same name on another machine is not."""

from __future__ import annotations

from typing import Final

from runner.errors import DatabaseError
from runner.service.blobs.store import BlobStore
from runner.service.database import settings
from runner.service.database.database import Database

NAME: Final = "blob-store"
"""Where the database has the store's identity."""


async def check_belongs(blobs: BlobStore, database: Database) -> None:
    """Make sure that both belong together; a database that knows of no store yet takes this one.

    Raises:
        DatabaseError: the database speaks of another store.
        StoreUnavailableError: the store does not answer.
    """
    found = await blobs.identity()
    if await database.run(settings.keep, NAME, found) != found:
        raise DatabaseError(
            "The blob store is not the one of this database.",
            hint="A folder serves one machine; use s3:// for several. A store that is moved keeps its file `identity`.",
        )
