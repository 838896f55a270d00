"""Who is asking, and the keys of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

from fastapi import APIRouter, Path, Request
from sqlalchemy import Connection, select

from runner.service.client.wire import (
    ID_PATTERN,
    CreatedKey,
    Key,
    KeyList,
    KeyUsage,
    Me,
    NewKey,
    NewQuotas,
    Quotas,
    Scope,
    Tenant,
)
from runner.service.database import keys
from runner.service.database.rows import KeyRow, Usage
from runner.service.database.schema import now
from runner.service.http.access import Administrator, Anybody
from runner.service.http.errors import HttpError, errors, not_found

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(prefix="/api/v1", tags=["keys"])

_SCOPES: tuple[Scope, ...] = get_args(Scope.__value__ if hasattr(Scope, "__value__") else Scope)


@router.get("/me", response_model=Me, responses=errors(401, 403))
async def get_me(caller: Anybody, request: Request) -> Me:
    """Return the key that is shown, its tenant, and what it uses of its quotas."""
    state: ServiceState = request.app.state.service
    used: Usage = await state.database.read(keys.usage, caller.key.id)
    return Me(
        tenant=Tenant(id=caller.key.tenant_id, name=caller.key.tenant),
        key=facts(caller.key),
        usage=KeyUsage(bytes=used.bytes, jobs=used.jobs, running=used.running),
    )


@router.get("/keys", response_model=KeyList, responses=errors(401, 403))
async def list_keys(caller: Administrator, request: Request) -> KeyList:
    """List the tenant's keys, oldest first, without their secrets."""
    state: ServiceState = request.app.state.service
    found = await state.database.read(keys.list_all, caller.tenant_id)
    return KeyList(items=[facts(key) for key in found])


@router.post("/keys", status_code=201, response_model=CreatedKey, responses=errors(401, 403, 422))
async def create_key(asked: NewKey, caller: Administrator, request: Request) -> CreatedKey:
    """Make a key of the same tenant. Its secret is in this answer and nowhere else."""
    state: ServiceState = request.app.state.service
    beyond = set(asked.scopes) - caller.key.scopes
    if beyond:
        raise HttpError(
            403,
            "missing-scope",
            f"the key {caller.key.id} cannot give the scope {min(beyond)}, which it does not have.",
        )
    quotas = _quotas(caller.key, asked.quotas)

    def create(connection: Connection) -> tuple[KeyRow, str]:
        expires_at = None
        if asked.expires_in_s is not None:
            expires_at = connection.execute(select(now())).scalar_one() + asked.expires_in_s
        key, secret = keys.create(
            connection,
            tenant=caller.key.tenant,
            name=asked.name,
            scopes=asked.scopes,
            expires_at=expires_at,
            max_bytes=quotas.max_bytes,
            max_jobs=quotas.max_jobs,
            max_running=quotas.max_running,
            requests_per_minute=quotas.requests_per_minute,
        )
        caller.audit(connection, "key.create", key.id, detail=f"{asked.name}: {' '.join(sorted(asked.scopes))}")
        return key, secret

    key, secret = await state.database.run(create)
    return CreatedKey(**facts(key).model_dump(), secret=secret)


@router.post("/keys/{key_id}/revoke", response_model=Key, responses=errors(401, 403, 404, 422))
async def revoke_key(key_id: Annotated[str, Path(pattern=ID_PATTERN)], caller: Administrator, request: Request) -> Key:
    """Have a key not be accepted any more; what was submitted with it goes on."""
    state: ServiceState = request.app.state.service

    def revoke(connection: Connection) -> KeyRow | None:
        key = keys.revoke(connection, key_id, tenant_id=caller.tenant_id)
        if key is not None:
            caller.audit(connection, "key.revoke", key_id)
        return key

    key = await state.database.run(revoke)
    if key is None:
        raise not_found("such key")
    return facts(key)


def facts(key: KeyRow) -> Key:
    """Return a key as the API tells it."""
    return Key(
        id=key.id,
        name=key.name,
        scopes=[scope for scope in _SCOPES if scope in key.scopes],
        quotas=Quotas(
            max_bytes=key.max_bytes,
            max_jobs=key.max_jobs,
            max_running=key.max_running,
            requests_per_minute=key.requests_per_minute,
        ),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


def _quotas(own: KeyRow, asked: NewQuotas) -> Quotas:
    """Return a new key's quotas.

    Raises:
        HttpError: one is more than the key that makes it has.
    """
    found = {}
    for name, value in asked.model_dump().items():
        most = getattr(own, name)
        if value is not None and value > most:
            raise HttpError(
                403, "beyond-quota", f"the key {own.id} cannot give {name} = {value}: it has {most} itself."
            )
        found[name] = most if value is None else value
    return Quotas(**found)
