"""A PostgreSQL server for the tests of one session: made when it is first needed, gone with the process that tests.

`postgres` is the fixture; `Server.create` gives the URL of a new database with the service's tables, `Server.empty` of
one without. The server listens on a socket in its own folder only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from runner.service.database.database import upgrade
from runner.service.database.schema import metadata
from tests.conftest import require
from tests.service.keeping import account, others

PATIENCE_S = 60.0
FOLDERS = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt")
INITDB = (
    "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"
)  # fmt: skip
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "listen_addresses": "",
    "max_connections": "200",
    "deadlock_timeout": "100ms",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
}


class Server:
    """A running server.

    Args:
        folder: Its socket lies there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()
        self._cleared: list[str] = []

    def url(self, name: str) -> str:
        """The URL of one of its databases, as the service takes it."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def empty(self) -> str:
        """Make a database without tables and return its URL."""
        name = f"test_{next(self._numbers)}"
        self._sql(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def create(self) -> str:
        """Return the URL of a database with the tables of the newest schema and nothing in them."""
        if self._cleared:
            return self._cleared.pop()
        url = self.empty()
        upgrade(url)
        return url

    def clear(self, url: str) -> None:
        """Take back a database that `create` gave: emptied, it is the next one's, which is quicker than a new one."""
        self.end_connections(url)
        with psycopg.connect(url, autocommit=True) as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(f"DELETE FROM {table.name}".encode())
        self._cleared.append(url)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self._sql(f"DROP DATABASE {url.partition('@/')[2].partition('?')[0]} WITH (FORCE)")

    def end_connections(self, url: str) -> None:
        """End all connections to a database, as a restart of the server would."""
        name = url.partition("@/")[2].partition("?")[0]
        self._sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )

    def _sql(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def programs() -> Path | None:
    """The folder of the newest installed server's programs."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [path.parent for base in FOLDERS for path in Path(base).glob("*/bin/initdb")]
    return max(folders, key=lambda path: [int(part) for part in path.parts if part.isdigit()], default=None)


@contextmanager
def running() -> Iterator[Server]:
    """Make a server and run it."""
    found = programs()
    assert found is not None
    # the path of a socket must be short, which the folders of tests are not
    folder = Path(tempfile.mkdtemp(prefix="bm-pg-", dir="/tmp"))
    user, group = account()
    if user is not None and group is not None:
        os.chown(folder, user, group)
    data = folder / "data"
    made = subprocess.run(
        [found / "initdb", "-D", data, *INITDB],
        capture_output=True,
        text=True,
        cwd="/",
        user=user,
        group=group,
        extra_groups=others(),
    )
    assert made.returncode == 0, made.stderr
    options = [option for name, value in SETTINGS.items() for option in ("-c", f"{name}={value}")]
    server_command: list[str | Path] = [found / "postgres", "-D", data, "-k", folder, *options]
    keeper = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("keeping.py"), folder, *server_command],
        stdin=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    try:
        server = Server(folder)
        wait_for(server, keeper)
        yield server
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(PATIENCE_S)


def wait_for(server: Server, keeper: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(server.url("postgres")).close()
            return
        except psycopg.OperationalError:
            log = server.folder / "server.log"
            assert keeper.poll() is None and time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of this session's own."""
    require(programs(), "PostgreSQL")
    with running() as server:
        yield server
