"""Transactions: whole or not at all, done again when others were in the way, and never twice."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from runner.errors import DatabaseError, UsageError
from runner.service.database import database as database_module
from runner.service.database import engine, keys
from runner.service.database.database import Database, upgrade
from runner.service.database.engine import parse_url
from runner.service.database.schema import keys as key_table
from runner.service.database.schema import settings, tenants
from tests.service.database.lab import at_once, execute, make_key
from tests.service.postgres import Server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(engine, "BUSY_S", 0.01)


def add_tenant(connection: Connection, name: str) -> None:
    connection.execute(insert(tenants).values(id=f"ten_{name}", name=name, created_at=1.0))


def names(database: Database) -> list[str]:
    return sorted(row.name for row in execute(database, select(tenants.c.name)))


def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    def fail(connection: Connection) -> None:
        add_tenant(connection, "acme")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        database.run_now(fail)
    assert names(database) == []


async def test_coroutines_run_transactions_without_holding_up_the_loop(database: Database) -> None:
    loop = threading.get_ident()

    def add(connection: Connection, name: str, *, again: bool) -> int:
        add_tenant(connection, name)
        assert again
        return threading.get_ident()

    threads = await asyncio.gather(*(database.run(add, f"t{number}", again=True) for number in range(8)))
    assert loop not in threads
    assert len(await database.read(lambda connection: connection.execute(select(tenants)).all())) == 8


def test_reading_writes_nothing(database: Database) -> None:
    with pytest.raises(DatabaseError, match=r"read.?only"):
        database.read_now(add_tenant, "acme")
    database.run_now(add_tenant, "other")
    assert names(database) == ["other"]


def test_reading_sees_one_state_and_waits_for_no_writer(database: Database) -> None:
    def write(connection: Connection) -> list[str]:
        add_tenant(connection, "acme")
        return database.read_now(lambda other: list(other.execute(select(tenants.c.name)).scalars()))

    assert database.run_now(write) == []
    assert names(database) == ["acme"]


def test_what_breaks_a_rule_of_the_schema_is_not_the_databases_fault(database: Database) -> None:
    database.run_now(add_tenant, "acme")
    with pytest.raises(IntegrityError):
        database.run_now(add_tenant, "acme")


def test_values_are_not_in_the_text_of_errors(database: Database) -> None:
    execute(database, insert(settings).values(name="x", value="top secret"))
    with pytest.raises(IntegrityError) as caught:
        execute(database, insert(settings).values(name="x", value="top secret"))
    assert "top secret" not in str(caught.value)


def test_transactions_in_each_others_way_are_done_again(database: Database) -> None:
    first, second = make_key(database), make_key(database)
    barrier = threading.Barrier(2)
    tries = []

    def take_both(connection: Connection, order: tuple[str, str]) -> None:
        tries.append(order)
        for number, key_id in enumerate(order):
            connection.execute(
                update(key_table).where(key_table.c.id == key_id).values(max_bytes=key_table.c.max_bytes + 1)
            )
            if number == 0 and database.dialect == "postgresql" and len(tries) <= 2:
                barrier.wait()

    orders = [(first.id, second.id), (second.id, first.id)]
    at_once(2, lambda number: database.run_now(take_both, orders[number]))
    assert len(tries) == (3 if database.dialect == "postgresql" else 2)
    found = [database.read_now(keys.get, key.id) for key in (first, second)]
    assert [key.max_bytes for key in found if key is not None] == [first.max_bytes + 2] * 2


def test_a_sqlite_database_that_stays_busy_is_told_and_nothing_is_done(sqlite_url: str) -> None:
    opened = Database.open(sqlite_url)
    beside = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    beside.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseError, match=r"The database cannot be used: database is locked\."):
        opened.run_now(add_tenant, "acme")
    assert names_read(opened) == []
    beside.execute("ROLLBACK")
    opened.run_now(add_tenant, "acme")
    assert names_read(opened) == ["acme"]
    beside.close()
    opened.close()


def test_a_sqlite_database_that_is_busy_for_a_moment_is_waited_for(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database.open(sqlite_url)
    beside = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    beside.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            beside.execute("ROLLBACK")

    monkeypatch.setattr(time, "sleep", pause)
    opened.run_now(add_tenant, "acme")
    assert len(pauses) == 3
    assert names_read(opened) == ["acme"]
    beside.close()
    opened.close()


def names_read(database: Database) -> list[str]:
    return database.read_now(lambda connection: list(connection.execute(select(tenants.c.name)).scalars()))


def test_a_lost_connection_is_replaced(postgres: Server) -> None:
    url = postgres.create()
    opened = Database.open(url)
    opened.run_now(add_tenant, "before")
    postgres.end_connections(url)
    opened.run_now(add_tenant, "after")
    assert names(opened) == ["after", "before"]
    opened.close()
    postgres.clear(url)


def test_a_transaction_whose_connection_is_lost_in_the_middle_is_done_again_once(postgres: Server) -> None:
    url = postgres.create()
    opened = Database.open(url)
    tries = []

    def lose(connection: Connection) -> None:
        add_tenant(connection, "acme")
        tries.append(1)
        if len(tries) == 1:
            postgres.end_connections(url)
        connection.execute(select(tenants)).all()

    opened.run_now(lose)
    assert len(tries) == 2
    assert names(opened) == ["acme"]
    opened.close()
    postgres.clear(url)


def test_a_transaction_of_which_nobody_knows_whether_it_took_place_is_not_done_again(postgres: Server) -> None:
    url = postgres.create()
    opened = Database.open(url)
    tries = []

    def lose(connection: Connection) -> None:
        add_tenant(connection, "acme")
        tries.append(1)
        postgres.end_connections(url)

    with pytest.raises(DatabaseError, match="it may or may not have been made"):
        opened.run_now(lose)
    assert len(tries) == 1
    assert names(opened) == []
    opened.close()
    postgres.clear(url)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://me:hunter2@/service?host={tmp_path}"
    for attempt in (Database.open, upgrade):
        with pytest.raises(DatabaseError, match="The database cannot be used: ") as caught:
            attempt(url)
        assert "hunter2" not in f"{caught.value} {caught.value.detail}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "cannot be read"),
        ("no url", "cannot be read"),
        ("mysql://me:hunter2@host/x", "cannot be one of mysql"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///file:x?mode=memory", "names no file"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"{said}.*sqlite:///PATH or postgresql://") as caught:
        Database.open(url)
    assert "hunter2" not in str(caught.value)


def test_a_url_of_postgresql_is_taken_in_each_of_its_forms() -> None:
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        assert parse_url(f"{scheme}://me:pw@host:5/x").drivername == "postgresql+psycopg"


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with pytest.raises(DatabaseError, match="there is no such file"):
        Database.open(f"sqlite:///{path}")
    path.write_text("no database at all, but long enough to have a header of one hundred bytes" * 9)
    for attempt in (Database.open, upgrade):
        with pytest.raises(DatabaseError, match="file is not a database"):
            attempt(f"sqlite:///{path}")


def test_closing_twice_is_harmless(database: Database) -> None:
    database.close()


def test_a_server_that_is_not_there_is_told_at_the_first_try() -> None:
    came: list[socket.socket] = []

    def turn_away() -> None:
        while True:
            try:
                came.append(listening.accept()[0])
            except OSError:
                return
            came[-1].close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=turn_away)
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for opened in (Database.open, upgrade):
            with pytest.raises(DatabaseError, match="cannot be used"):
                opened(f"postgresql://me@{address}/x?sslmode=disable&gssencmode=disable")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert len(came) == 2
