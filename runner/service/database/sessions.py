"""Browser sessions: a random token that stands for a key for some time. Of the token only the digest is kept."""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy import Connection, delete, insert, select

from runner.service.database import keys
from runner.service.database.rows import KeyRow
from runner.service.database.schema import browser_sessions, now
from runner.service.database.schema import keys as key_table


def create(connection: Connection, key_id: str, *, lifetime_s: float) -> str:
    """Begin a session of a key and return its token, which is not kept."""
    token = secrets.token_urlsafe(32)
    connection.execute(
        insert(browser_sessions).values(
            digest=_digest(token), key_id=key_id, created_at=now(), expires_at=now() + lifetime_s
        )
    )
    return token


def find(connection: Connection, token: str) -> KeyRow | None:
    """Return the key of a session; `None` when there is none, it is over, or the key is good no more."""
    key_id = connection.execute(
        select(browser_sessions.c.key_id)
        .join(key_table, key_table.c.id == browser_sessions.c.key_id)
        .where(browser_sessions.c.digest == _digest(token), browser_sessions.c.expires_at > now(), keys.is_good())
    ).scalar_one_or_none()
    return None if key_id is None else keys.get(connection, key_id)


def end(connection: Connection, token: str) -> None:
    """End a session; one that is over already stays so."""
    connection.execute(delete(browser_sessions).where(browser_sessions.c.digest == _digest(token)))


def _digest(token: str) -> str:
    # a random token of 256 bits: the digest says nothing about it, and looking it up takes no secret time
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
