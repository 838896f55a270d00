"""API keys and the tenants that they belong to. Of a secret only the digest is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, func, insert, or_, select, update

from runner.service.database.engine import insert_into
from runner.service.database.rows import KeyRow, Usage
from runner.service.database.schema import IS_QUEUED, IS_RUNNING, jobs, keys, new_id, now, tenants, uploads

USED_S: Final = 60.0
"""How exactly `last_used_at` is kept: a write per request would be too many."""

_ALPHABET: Final = string.ascii_letters + string.digits
_SECRET: Final = re.compile(r"bmx_(key_[a-z2-7]{20})_[A-Za-z0-9]{43}")


def create(
    connection: Connection,
    *,
    tenant: str,
    name: str,
    scopes: Iterable[str],
    expires_at: float | None = None,
    max_bytes: int,
    max_jobs: int,
    max_running: int,
    requests_per_minute: int,
) -> tuple[KeyRow, str]:
    """Make a key, and its tenant when there is none of that name.

    Args:
        connection: In a transaction.
        tenant: The tenant's name.
        name: What its owner calls the key.
        scopes: What it may be used for.
        expires_at: When it ends, in seconds since 1970; never by default.
        max_bytes: Bytes of uploads that it may have at once.
        max_jobs: Jobs that it may have waiting or running at once.
        max_running: Of these, how many may run at once.
        requests_per_minute: How often it may ask.

    Returns:
        The key, and the secret, which is not kept.
    """
    secret = f"bmx_{(key_id := new_id('key'))}_{''.join(secrets.choice(_ALPHABET) for _ in range(43))}"
    connection.execute(
        insert(keys).values(
            id=key_id,
            tenant_id=tenant_of(connection, tenant),
            name=name,
            digest=_digest(secret),
            scopes=sorted(set(scopes)),
            created_at=now(),
            expires_at=expires_at,
            max_bytes=max_bytes,
            max_jobs=max_jobs,
            max_running=max_running,
            requests_per_minute=requests_per_minute,
        )
    )
    created = get(connection, key_id)
    assert created is not None
    return created, secret


def tenant_of(connection: Connection, name: str) -> str:
    """Return the id of the tenant of that name, which is made when there is none."""
    connection.execute(
        insert_into(connection, tenants).values(id=new_id("ten"), name=name, created_at=now()).on_conflict_do_nothing()
    )
    found: str = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar_one()
    return found


def find(connection: Connection, secret: str) -> KeyRow | None:
    """Return the key that a secret is of; `None` when there is none, or it has expired or was revoked."""
    matched = _SECRET.fullmatch(secret)
    if matched is None:
        return None
    found = connection.execute(_with_tenant(keys.c.digest).where(keys.c.id == matched[1], is_good())).one_or_none()
    if found is None or not hmac.compare_digest(found.digest, _digest(secret)):
        return None
    return _key(found)


def is_usable(connection: Connection, key_id: str) -> bool:
    """Tell whether a key is there and neither expired nor revoked."""
    return connection.execute(select(keys.c.id).where(keys.c.id == key_id, is_good())).one_or_none() is not None


def get(connection: Connection, key_id: str) -> KeyRow | None:
    """Return a key, also one that has expired or was revoked."""
    found = connection.execute(_with_tenant().where(keys.c.id == key_id)).one_or_none()
    return None if found is None else _key(found)


def list_all(connection: Connection, tenant_id: str | None = None) -> list[KeyRow]:
    """Return the keys of a tenant, or of all, oldest first."""
    query = _with_tenant().order_by(keys.c.created_at, keys.c.id)
    if tenant_id is not None:
        query = query.where(keys.c.tenant_id == tenant_id)
    return [_key(row) for row in connection.execute(query)]


def revoke(connection: Connection, key_id: str, *, tenant_id: str | None = None) -> KeyRow | None:
    """End a key for good; what it has submitted goes on. Revoking it again changes nothing.

    Args:
        connection: In a transaction.
        key_id: The key.
        tenant_id: Whose key it must be, if that matters.

    Returns:
        The key; `None` when there is no such key.
    """
    change = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=now())
    if tenant_id is not None:
        change = change.where(keys.c.tenant_id == tenant_id)
    connection.execute(change)
    found = get(connection, key_id)
    return found if found is not None and tenant_id in (None, found.tenant_id) else None


def touch(connection: Connection, key_id: str) -> None:
    """Note that a key was used just now, to the minute."""
    connection.execute(
        update(keys)
        .where(keys.c.id == key_id, or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < now() - USED_S))
        .values(last_used_at=now())
    )


def usage(connection: Connection, key_id: str) -> Usage:
    """Return what a key has taken of its quotas.

    Bytes are those of uploads that are kept, and those announced by uploads that may still come.
    """
    taken = select(func.coalesce(func.sum(func.coalesce(uploads.c.bytes, uploads.c.expected_bytes, 0)), 0)).where(
        uploads.c.key_id == key_id,
        or_(uploads.c.state == "stored", uploads.c.expires_at > now()),
    )
    running = running_jobs(connection, key_id)
    return Usage(
        bytes=int(connection.execute(taken).scalar_one()),
        jobs=waiting_jobs(connection, key_id) + running,
        running=running,
    )


def waiting_jobs(connection: Connection, key_id: str) -> int:
    """Return how many jobs of a key wait for an executor."""
    return connection.execute(select(func.count()).where(jobs.c.key_id == key_id, IS_QUEUED)).scalar_one()


def running_jobs(connection: Connection, key_id: str) -> int:
    """Return how many jobs of a key run."""
    return connection.execute(select(func.count()).where(jobs.c.key_id == key_id, IS_RUNNING)).scalar_one()


def hold(connection: Connection, key_id: str) -> KeyRow | None:
    """Return a key and keep its quotas from being taken by others until the transaction ends."""
    locked = connection.execute(
        select(keys.c.id).where(keys.c.id == key_id).with_for_update(key_share=True)
    ).one_or_none()
    return None if locked is None else get(connection, key_id)


def is_good() -> Any:
    """Return the condition that a key is neither expired nor revoked."""
    return and_(keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now()))


def _with_tenant(*columns: Any) -> Select[Any]:
    listed = [keys.c[name] for name in _COLUMNS]
    return select(*listed, tenants.c.name.label("tenant"), *columns).join(tenants, keys.c.tenant_id == tenants.c.id)


_COLUMNS: Final = tuple(name for name in KeyRow.__dataclass_fields__ if name != "tenant")


def _key(row: Row[Any]) -> KeyRow:
    fields = {name: getattr(row, name) for name in (*_COLUMNS, "tenant")}
    return KeyRow(**{**fields, "scopes": frozenset(fields["scopes"])})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
