"""`benchmax keys`: API keys of a service, made, listed and revoked in its database."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
from collections.abc import Sequence

from rich.table import Table
from sqlalchemy import Connection, select

from runner.cli.console import results, say, write_json
from runner.cli.service_settings import settings_of
from runner.errors import UsageError
from runner.service.database import audit, keys
from runner.service.database.database import Database
from runner.service.database.rows import KeyRow, Usage
from runner.service.database.schema import now
from runner.service.settings import Settings
from runner.text import one_line

DEFAULT_SCOPES = ("submit", "read", "models")
NAME_CHARS = 200


def execute(arguments: argparse.Namespace) -> int:
    """Do with the keys what the arguments say."""
    settings = settings_of(arguments)
    actions = {"create": _create, "list": _list, "revoke": _revoke}
    with contextlib.closing(Database.open(settings.database_url, threads=1)) as database:
        actions[arguments.action](database, settings, arguments)
    return 0


def _create(database: Database, settings: Settings, arguments: argparse.Namespace) -> None:
    limits = settings.limits
    for option, text in (("NAME", arguments.name), ("--tenant", arguments.tenant)):
        if not text.strip() or not text.isprintable() or len(text) > NAME_CHARS:
            raise UsageError(
                f"{option} must be a text of 1 to {NAME_CHARS} printable characters.", hint="Choose another one."
            )

    def make(connection: Connection) -> tuple[KeyRow, str]:
        key, secret = keys.create(
            connection,
            tenant=arguments.tenant,
            name=arguments.name,
            scopes=arguments.scope or DEFAULT_SCOPES,
            expires_at=None if arguments.expires is None else _clock(connection) + arguments.expires,
            max_bytes=limits.key_bytes if arguments.max_bytes is None else arguments.max_bytes,
            max_jobs=arguments.max_jobs or limits.key_jobs,
            max_running=arguments.max_running or limits.key_running,
            requests_per_minute=arguments.requests_per_minute or limits.key_requests_per_minute,
        )
        _note(connection, "key.create", key)
        return key, secret

    key, secret = database.run_now(make)
    # alone on standard output, so that a shell can put it into a variable
    results(json=arguments.json).print(secret, soft_wrap=True)
    if arguments.json:
        write_json(_encoded({"format": 1, "secret": secret, **_facts(key)}))
    say(f"key {key.id} of tenant {key.tenant} may {', '.join(sorted(key.scopes))}; its secret is not shown again")


def _list(database: Database, settings: Settings, arguments: argparse.Namespace) -> None:
    def look(connection: Connection) -> tuple[list[tuple[KeyRow, Usage]], float]:
        listed = [(key, keys.usage(connection, key.id)) for key in keys.list_all(connection)]
        return listed, _clock(connection)

    found, at = database.read_now(look)
    console = results(json=arguments.json)
    if found:
        console.print(_table(found, at))
    console.print(f"{len(found)} key{'' if len(found) == 1 else 's'}", soft_wrap=True)
    if arguments.json:
        write_json(_encoded({"format": 1, "keys": [{**_facts(key), "usage": _used(usage)} for key, usage in found]}))


def _revoke(database: Database, settings: Settings, arguments: argparse.Namespace) -> None:
    def end(connection: Connection) -> KeyRow | None:
        key = keys.revoke(connection, arguments.id)
        if key is not None:
            _note(connection, "key.revoke", key)
        return key

    key = database.run_now(end)
    if key is None:
        raise UsageError(f"there is no key {arguments.id!r}.", hint="`benchmax keys list` shows the ids.")
    results(json=arguments.json).print(f"revoked {key.id} ({one_line(key.name)})", soft_wrap=True)
    if arguments.json:
        write_json(_encoded({"format": 1, **_facts(key)}))


def _clock(connection: Connection) -> float:
    """Return the time by the database's clock, which is the one that keys are compared with."""
    return float(connection.execute(select(now())).scalar_one())


def _note(connection: Connection, action: str, key: KeyRow) -> None:
    audit.write(
        connection,
        action=action,
        object=key.id,
        outcome="ok",
        tenant_id=key.tenant_id,
        detail="by the command line",
    )


def _table(found: Sequence[tuple[KeyRow, Usage]], at: float) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("id", "tenant", "name", "scopes", "state", "last used", "jobs", "bytes"):
        table.add_column(title, justify="right" if title in {"jobs", "bytes"} else "left", no_wrap=True)
    for key, usage in found:
        table.add_row(
            key.id,
            one_line(key.tenant, 30),
            one_line(key.name, 40),
            ",".join(sorted(key.scopes)),
            _state(key, at),
            "never" if key.last_used_at is None else _day(key.last_used_at),
            f"{usage.jobs} of {key.max_jobs}",
            f"{usage.bytes:,} of {key.max_bytes:,}",
        )
    return table


def _state(key: KeyRow, at: float) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is None:
        return "good"
    return f"{'good until' if key.expires_at > at else 'expired'} {_day(key.expires_at)}"


def _day(at: float) -> str:
    return dt.datetime.fromtimestamp(at, tz=dt.UTC).strftime("%Y-%m-%d")


def _facts(key: KeyRow) -> dict[str, object]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
        "quotas": {
            "max_bytes": key.max_bytes,
            "max_jobs": key.max_jobs,
            "max_running": key.max_running,
            "requests_per_minute": key.requests_per_minute,
        },
    }


def _used(usage: Usage) -> dict[str, int]:
    return {"bytes": usage.bytes, "jobs": usage.jobs, "running": usage.running}


def _encoded(facts: dict[str, object]) -> bytes:
    return json.dumps(facts, indent=1).encode() + b"\n"
