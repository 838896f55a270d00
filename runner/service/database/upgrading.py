"""Brings a database to the schema of this release, and says when it is of another one."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, inspect, text

from runner.errors import DatabaseError

REVISIONS: Final = ("0001",)
"""All there have been, oldest first. Written down here, so that only an upgrade needs what applies its steps."""

_LOCK: Final = 0x62656E63686D6178
"""Of PostgreSQL's advisory locks: whoever upgrades has this one. It spells benchmax."""


def newest() -> str:
    """Return the revision that this release works with."""
    return REVISIONS[-1]


def revision_of(connection: Connection) -> str | None:
    """Return a database's revision; `None` for one without tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return found


def upgrade(connection: Connection) -> tuple[str | None, str]:
    """Apply the steps that are missing, all or none; of several processes at once one does it, the others wait.

    Args:
        connection: In a transaction that may write. On SQLite it must hold the write lock already.

    Returns:
        The revision before and after.

    Raises:
        DatabaseError: the database is of a newer release.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _refuse_other_encodings(connection)
    before, after = revision_of(connection), newest()
    _refuse_unknown(before, after)
    if before != after:
        _apply(connection, after)
    return before, after


def check(connection: Connection) -> None:
    """Make sure that a database is of this release's revision.

    Raises:
        DatabaseError: it has no tables yet, or is of an older or newer release.
    """
    found, wanted = revision_of(connection), newest()
    _refuse_unknown(found, wanted)
    if found is None:
        raise DatabaseError(
            "The database cannot be used: it has no tables yet.", hint="`benchmax serve` makes them when it starts."
        )
    if found != wanted:
        raise DatabaseError(
            f"The database cannot be used: its schema is revision {found}, this release needs {wanted}.",
            hint="`benchmax serve` of this release upgrades it when it starts.",
        )


def _refuse_unknown(found: str | None, wanted: str) -> None:
    if found is not None and found not in REVISIONS:
        raise DatabaseError(
            f"The database cannot be used: its schema is revision {found}, this release knows up to {wanted}.",
            hint="Use the release of benchmax that the database was upgraded with, or a newer one.",
        )


def _refuse_other_encodings(connection: Connection) -> None:
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(
            f"The database cannot be used: its encoding is {encoding}.",
            hint="Make one with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`.",
        )


def _apply(connection: Connection, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "runner.service.database:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
