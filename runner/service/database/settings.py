"""What all processes of a service share and nobody sets, such as the key that URLs are signed with."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, select

from runner.service.database.engine import insert_into
from runner.service.database.schema import settings


def secret(connection: Connection, name: str) -> bytes:
    """Return the 32 random bytes of that name, the same for everybody; made when first asked for."""
    connection.execute(
        insert_into(connection, settings).values(name=name, value=secrets.token_hex(32)).on_conflict_do_nothing()
    )
    value: str = connection.execute(select(settings.c.value).where(settings.c.name == name)).scalar_one()
    return bytes.fromhex(value)


def keep(connection: Connection, name: str, value: str) -> str:
    """Return the value kept under a name; it is this one from now on where there was none."""
    connection.execute(insert_into(connection, settings).values(name=name, value=value).on_conflict_do_nothing())
    kept: str = connection.execute(select(settings.c.value).where(settings.c.name == name)).scalar_one()
    return kept
