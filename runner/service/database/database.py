"""The database as the service's other parts have it: functions that take a connection, run as whole transactions.

`run` and `read` are for coroutines, `run_now` and `read_now` the same for whoever may block. A transaction is done
again when the database refused it for being in another one's way; so what is run has no effects but those in the
database, or such as may happen twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, OperationalError, ProgrammingError

from runner.errors import DatabaseError
from runner.service.database import upgrading
from runner.service.database.engine import READ_ONLY, is_worth_repeating, make_engine, parse_url
from runner.service.database.host import HostLock, refuse_network_file_system

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 4
"""Transactions at once in one process; each takes milliseconds."""

TRIES: Final = 9
FIRST_PAUSE_S: float = 0.02
"""Doubled from one try to the next, with chance in it: five seconds in all, so that a server's restart is survived."""


class Database:
    """An open database of this release's schema. Made by `Database.open`; closed by `close`, twice is harmless.

    Safe to use from several threads and loops.
    """

    def __init__(self, engine: Engine, *, lock: HostLock | None, threads: int) -> None:
        self._engine = engine
        self._lock = lock
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="database")
        # SQLite has one writer at a time: who waits here costs nothing, who waits there polls
        self._writers = (
            ThreadPoolExecutor(1, thread_name_prefix="database-writer") if lock is not None else self._readers
        )

    @classmethod
    def open(cls, url: str, *, threads: int = THREADS) -> Self:
        """Open a database that `upgrade` has made, or brought up to date.

        Args:
            url: `sqlite:///PATH` or `postgresql://…`.
            threads: Transactions at once.

        Raises:
            UsageError: the URL cannot be meant.
            DatabaseError: it cannot be reached, is of another schema, lies on a network file system, or another host
                has it open.
        """
        engine, lock = _connect(parse_url(url), threads=threads, create=False)
        try:
            database = cls(engine, lock=lock, threads=threads)
            database.read_now(upgrading.check)
        except BaseException:
            engine.dispose()
            if lock is not None:
                lock.close()
            raise
        return database

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    async def run(self, fn: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(connection, …)` in one transaction that may write, and return what it returns.

        It is done whole or not at all; a caller that is cancelled meanwhile does not stop it.

        Raises:
            DatabaseError: the database does not answer, or cannot do it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writers, lambda: self.run_now(fn, *args, **kwargs))

    async def read(self, fn: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(connection, …)` in one transaction that only reads: it sees one state, and waits for no writer.

        Raises:
            DatabaseError: as `run`.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: self.read_now(fn, *args, **kwargs))

    def run_now(self, fn: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do as `run` does, in this thread."""
        return _repeated(lambda: _transact(self._engine, lambda connection: fn(connection, *args, **kwargs)))

    def read_now(self, fn: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do as `read` does, in this thread."""
        engine = self._engine.execution_options(**{READ_ONLY: True})
        return _repeated(lambda: _transact(engine, lambda connection: fn(connection, *args, **kwargs)))

    def close(self) -> None:
        """Wait for transactions that run, and close all connections."""
        self._readers.shutdown()
        self._writers.shutdown()
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()


def upgrade(url: str) -> tuple[str | None, str]:
    """Make the tables, or bring them up to date; of several processes at once one does it.

    Args:
        url: As for `Database.open`. A SQLite file is made, and its folder.

    Returns:
        The revision before, `None` for a new database, and after.

    Raises:
        UsageError: the URL cannot be meant.
        DatabaseError: as `Database.open`; an older schema is what this is for.
    """
    engine, lock = _connect(parse_url(url), threads=1, create=True)
    try:
        return _repeated(lambda: _transact(engine, upgrading.upgrade))
    finally:
        engine.dispose()
        if lock is not None:
            lock.close()


def _connect(url: URL, *, threads: int, create: bool) -> tuple[Engine, HostLock | None]:
    if url.get_backend_name() != "sqlite":
        engine = make_engine(url, connections=threads)
        _reach(engine)
        return engine, None
    assert url.database is not None
    path = Path(url.database)
    if create:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # what is in it is nobody else's business
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise DatabaseError(f"The database {path} cannot be made: {error.strerror}.") from None
    elif not path.exists():
        raise DatabaseError(
            f"The database {path} cannot be opened: there is no such file.", hint="`benchmax serve` makes it."
        )
    refuse_network_file_system(path)
    # one connection more than there are readers: the writer's
    return make_engine(url, connections=threads + 1), HostLock(path)


def _reach(engine: Engine) -> None:
    """Connect once: whoever starts a service wants to hear at once that its database is not there."""
    try:
        engine.connect().close()
    except OperationalError as error:
        engine.dispose()
        raise _unusable(error) from error


def _transact(engine: Engine, fn: Callable[[Connection], T]) -> T:
    with _as_our_own(), _connected(engine) as connection, connection.begin() as transaction:
        result = fn(connection)
        try:
            transaction.commit()
        except DBAPIError as error:
            if error.connection_invalidated:
                # nobody knows whether it has taken place: it must not be done again
                raise DatabaseError(
                    "The database was lost while a change was being made; it may or may not have been made."
                ) from error
            raise
        return result


@contextlib.contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    try:
        connection = engine.connect()
    except OperationalError as error:
        if engine.dialect.name == "postgresql":
            # nothing has been asked yet, and a server that restarts refuses for a while
            raise _AgainError(error) from error
        raise
    with connection:
        yield connection


class _AgainError(Exception):
    """Raised when a transaction left nothing behind and may be done again."""

    def __init__(self, cause: DBAPIError) -> None:
        super().__init__()
        self.cause = cause


@contextlib.contextmanager
def _as_our_own() -> Iterator[None]:
    try:
        yield
    except (DataError, IntegrityError, NotSupportedError, ProgrammingError):
        # of whoever asked, not of the database
        raise
    except DBAPIError as error:
        if error.connection_invalidated or is_worth_repeating(error):
            raise _AgainError(error) from error
        raise _unusable(error) from error


def _repeated(attempt: Callable[[], T]) -> T:
    pause = FIRST_PAUSE_S
    for left in reversed(range(TRIES)):
        try:
            return attempt()
        except _AgainError as again:
            if not left:
                raise _unusable(again.cause) from again.cause
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # so that two do not meet again
            pause *= 2
    raise AssertionError


def _unusable(error: DBAPIError) -> DatabaseError:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return DatabaseError(f"The database cannot be used: {lines[0]}.", detail="\n".join(lines[1:]))
