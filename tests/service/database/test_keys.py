"""Keys: found by their secret alone, of which nothing is kept; over when they expire or are revoked."""

from __future__ import annotations

import re
import time

import pytest
from sqlalchemy import select

from runner.service.database import audit, executors, keys, sessions, settings
from runner.service.database.database import Database
from runner.service.database.rows import Usage
from runner.service.database.schema import browser_sessions, metadata
from runner.service.database.schema import keys as key_table
from tests.service.database.lab import announce, at_once, claim, execute, make_key, submit, upload

QUOTAS = {"max_bytes": 10, "max_jobs": 3, "max_running": 2, "requests_per_minute": 60}


def test_a_key_is_found_by_its_secret(database: Database) -> None:
    created, secret = database.run_now(
        keys.create, tenant="acme", name="laptop", scopes=["read", "submit", "read"], **QUOTAS
    )
    assert re.fullmatch(r"bmx_key_[a-z2-7]{20}_[A-Za-z0-9]{43}", secret)
    assert database.read_now(keys.find, secret) == created
    assert (created.tenant, created.name, created.scopes) == ("acme", "laptop", frozenset({"read", "submit"}))
    assert (created.max_bytes, created.max_jobs, created.max_running, created.requests_per_minute) == (10, 3, 2, 60)


def test_a_secret_that_differs_in_one_character_finds_nothing(database: Database) -> None:
    _, secret = database.run_now(keys.create, tenant="acme", name="laptop", scopes=[], **QUOTAS)
    for place in range(0, len(secret), 7):
        other = "b" if secret[place] == "a" else "a"
        assert database.read_now(keys.find, secret[:place] + other + secret[place + 1 :]) is None


@pytest.mark.parametrize(
    "secret", ["", "bmx_", "bmx_key_" + "a" * 20, "\0", "\ud800", "é" * 70, "x" * 100_000, "' OR 1=1"]
)
def test_a_secret_that_is_none_finds_nothing(database: Database, secret: str) -> None:
    make_key(database)
    assert database.read_now(keys.find, secret) is None


def test_nothing_of_a_secret_is_kept(database: Database) -> None:
    created, secret = database.run_now(keys.create, tenant="acme", name="laptop", scopes=[], **QUOTAS)
    token = database.run_now(sessions.create, created.id, lifetime_s=60.0)
    kept = repr([execute(database, select(table)) for table in metadata.sorted_tables])
    assert secret.rpartition("_")[2] not in kept
    assert token not in kept


def test_a_key_is_over_when_it_expires(database: Database) -> None:
    past, secret = database.run_now(
        keys.create, tenant="acme", name="old", scopes=[], expires_at=time.time() - 60, **QUOTAS
    )
    _, good = database.run_now(
        keys.create, tenant="acme", name="new", scopes=[], expires_at=time.time() + 600, **QUOTAS
    )
    assert database.read_now(keys.find, secret) is None
    assert not database.read_now(keys.is_usable, past.id)
    assert database.read_now(keys.find, good) is not None


def test_a_revoked_key_is_over_for_good(database: Database) -> None:
    created, secret = database.run_now(keys.create, tenant="acme", name="laptop", scopes=[], **QUOTAS)
    first = database.run_now(keys.revoke, created.id)
    again = database.run_now(keys.revoke, created.id)
    assert first is not None
    assert first.revoked_at is not None
    assert again == first
    assert database.read_now(keys.find, secret) is None
    assert not database.read_now(keys.is_usable, created.id)


def test_a_key_of_another_tenant_cannot_be_revoked(database: Database) -> None:
    ours, theirs = make_key(database, "acme"), make_key(database, "other")
    assert database.run_now(keys.revoke, theirs.id, tenant_id=ours.tenant_id) is None
    assert database.read_now(keys.is_usable, theirs.id)
    assert database.run_now(keys.revoke, "key_unknown") is None


def test_keys_are_listed_by_tenant(database: Database) -> None:
    first, second, other = make_key(database), make_key(database), make_key(database, "other")
    assert database.read_now(keys.list_all, first.tenant_id) == [first, second]
    assert database.read_now(keys.list_all) == [first, second, other]
    assert first.tenant_id == second.tenant_id != other.tenant_id


def test_a_tenant_that_is_named_by_many_at_once_is_made_once(database: Database) -> None:
    made = at_once(6, lambda number: make_key(database, "new"))
    assert len({key.tenant_id for key in made}) == 1


def test_the_use_of_a_key_is_noted_to_the_minute(database: Database) -> None:
    key = make_key(database)
    database.run_now(keys.touch, key.id)
    first = database.read_now(keys.get, key.id)
    database.run_now(keys.touch, key.id)
    second = database.read_now(keys.get, key.id)
    assert first is not None
    assert second is not None
    assert second.last_used_at == first.last_used_at is not None
    execute(database, key_table.update().values(last_used_at=1.0))
    database.run_now(keys.touch, key.id)
    third = database.read_now(keys.get, key.id)
    assert third is not None
    assert third.last_used_at is not None
    assert third.last_used_at >= first.last_used_at


def test_usage_counts_what_is_kept_what_is_announced_and_what_is_open(database: Database) -> None:
    key, other = make_key(database), make_key(database)
    upload(database, key, "a", "1234")
    upload(database, other, "b", "123456")
    announce(database, key, "c", expected_bytes=30)
    announce(database, key, "late", expected_bytes=500, lifetime_s=-1.0)
    for _ in range(3):
        submit(database, key)
    claim(database)
    assert database.read_now(keys.usage, key.id) == Usage(bytes=34, jobs=3, running=1)


def test_a_session_stands_for_its_key(database: Database) -> None:
    key = make_key(database)
    token = database.run_now(sessions.create, key.id, lifetime_s=600.0)
    assert database.read_now(sessions.find, token) == key
    assert database.read_now(sessions.find, token + "x") is None
    assert database.read_now(sessions.find, "\ud800") is None


def test_a_session_is_over_when_it_ends_expires_or_its_key_is_revoked(database: Database) -> None:
    key = make_key(database)
    ended, expired, revoked = (database.run_now(sessions.create, key.id, lifetime_s=600.0) for _ in range(3))
    database.run_now(sessions.end, ended)
    assert database.read_now(sessions.find, ended) is None
    assert database.read_now(sessions.find, expired) is not None
    execute(database, browser_sessions.update().values(expires_at=1.0))
    assert database.read_now(sessions.find, expired) is None
    execute(database, browser_sessions.update().values(expires_at=1e12))
    assert database.read_now(sessions.find, revoked) is not None
    database.run_now(keys.revoke, key.id)
    assert database.read_now(sessions.find, revoked) is None


def test_a_shared_secret_is_the_same_for_all_who_ask_at_once(database: Database) -> None:
    found = at_once(6, lambda number: database.run_now(settings.secret, "signing"))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert database.run_now(settings.secret, "other") != found[0]


def test_the_audit_trail_is_read_in_pages_newest_first(database: Database) -> None:
    key = make_key(database)
    for number in range(5):
        database.run_now(audit.write, tenant_id=key.tenant_id, action=f"a{number}", outcome="ok", detail="\0 \ud800")
    database.run_now(audit.write, tenant_id="ten_other", action="theirs", outcome="denied")
    first = database.read_now(audit.page, key.tenant_id, limit=2)
    rest = database.read_now(audit.page, key.tenant_id, before=first[-1].id, limit=10)
    assert [row.action for row in first + rest] == ["a4", "a3", "a2", "a1", "a0"]
    assert first[0].detail == "� �"
    assert [row.action for row in database.read_now(audit.page, limit=1)] == ["theirs"]


def test_executors_are_alive_while_they_are_heard_of(database: Database) -> None:
    first = database.run_now(executors.register, host="one", pid=1)
    second = database.run_now(executors.register, host="two", pid=2)
    assert [row.id for row in database.read_now(executors.alive, 600.0)] == [first, second]
    database.run_now(executors.stopped, first)
    assert [row.id for row in database.read_now(executors.alive, 600.0)] == [second]
    assert database.read_now(executors.alive, -1.0) == []
    database.run_now(executors.seen, second)
    assert [row.host for row in database.read_now(executors.alive, 600.0)] == ["two"]
