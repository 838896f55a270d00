"""Makes SQLAlchemy engines for the two databases there are, and hides in what they differ.

SQLite: write-ahead log, foreign keys, and a write transaction takes the write lock when it begins, so that none fails
half-way for having read first. PostgreSQL: read committed; what has to be exclusive locks its rows. There, a
transaction that its process has forgotten, stopped or lost is ended by the server, so that its locks do not stay.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from runner.errors import UsageError

READ_ONLY: Final = "benchmax_read_only"
"""Execution option of a connection whose transaction writes nothing."""

BUSY_S: Final = 30.0
"""How long SQLite waits for another process's transaction; ours take milliseconds."""

TURN_S: Final = 0.001
"""Between two tries to begin to write on SQLite."""

CONNECT_S: Final = 10
"""One attempt at reaching PostgreSQL."""

STATEMENT_S: Final = 60
"""One statement on PostgreSQL, waiting for locks included."""

IDLE_S: Final = 60
"""PostgreSQL ends a transaction in which nothing is asked for so long."""

UNREACHABLE_S: Final = 30
"""Sent data that PostgreSQL's host does not acknowledge for so long means that it is gone."""

_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})
"""PostgreSQL's serialization failure, deadlock, and lock not available."""

_BUSY: Final = frozenset({5, 6})
"""SQLite's BUSY and LOCKED."""


def parse_url(url: str) -> URL:
    """Read a database's URL: `sqlite:///PATH` or `postgresql://…`, also with `+psycopg`.

    Raises:
        UsageError: it is of neither kind, or of SQLite without a file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError("The database URL cannot be read.", hint=_FORMS) from None
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise UsageError(f"The database cannot be one of {parsed.drivername}.", hint=_FORMS)
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise UsageError("The database URL names no file.", hint=_FORMS)
    return parsed.set(drivername="sqlite+pysqlite", database=str(Path(parsed.database).absolute()))


_FORMS: Final = "It has the form sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME."


def make_engine(url: URL, *, connections: int) -> Engine:
    """Return an engine for at most `connections` at once; nothing is opened yet.

    Args:
        url: As `parse_url` gives it.
        connections: How many threads use it.
    """
    if url.get_backend_name() == "sqlite":
        engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            hide_parameters=True,
            json_serializer=_json,
            # transactions are begun by us, below
            connect_args={"timeout": BUSY_S, "check_same_thread": False, "isolation_level": None},
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,
        json_serializer=_json,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": CONNECT_S,
            "application_name": "benchmax",
            "keepalives_idle": UNREACHABLE_S,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": UNREACHABLE_S * 1000,
        },
    )
    event.listen(engine, "connect", _set_up_postgresql)
    event.listen(engine, "begin", _begin_postgresql)
    return engine


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that can say what happens when the row is there already."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def is_worth_repeating(error: DBAPIError) -> bool:
    """Tell whether the same transaction may well succeed when it is done again; it has left nothing behind."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _BUSY
    return getattr(error.orig, "sqlstate", None) in _AGAIN


_json: Final = partial(json.dumps, allow_nan=False)
"""What is not JSON is refused by both, not by PostgreSQL alone."""


def _set_up_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin_sqlite(connection: Connection) -> None:
    reads = bool(connection.get_execution_options().get(READ_ONLY))
    connection.exec_driver_sql(f"PRAGMA query_only = {reads}")
    if reads:
        connection.exec_driver_sql("BEGIN")
        return
    # its own waiting sleeps ever longer, up to 100 ms: beside a process that writes all the time nobody had a turn
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    try:
        _begin_to_write(connection)
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(BUSY_S * 1000)}")


def _begin_to_write(connection: Connection) -> None:
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        except OperationalError as error:
            if not is_worth_repeating(error) or time.monotonic() >= until:
                raise
        time.sleep(TURN_S * random.uniform(0.5, 1.5))  # noqa: S311  # so that two do not meet again


def _set_up_postgresql(connection: Any, record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'")
        cursor.execute(f"SET statement_timeout = '{STATEMENT_S}s'")
    connection.commit()


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(READ_ONLY):
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
