"""A PostgreSQL server with a password, whose postmaster may be killed: what was committed is there when it is back.

Unless it is to be durable it does not wait for the disk: a process that is killed leaves what it has written to the
kernel.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from runner.service.database.database import upgrade
from tests.service.chaos.unit import PATIENCE_S, Unit
from tests.service.keeping import account, others
from tests.service.postgres import programs

HASTY = {"fsync": "off"}
"""What a process that is killed has written, the kernel has."""

SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    # of a statement that failed not even the text is of use in its log, and it may hold anything
    "log_min_error_statement": "panic",
}


@dataclass(frozen=True)
class Cluster:
    """A running server.

    Args:
        unit: It.
        folder: Its socket lies there.
        password: Of its user.
        address: Where it listens beside the socket; empty for nowhere.
    """

    unit: Unit
    folder: Path
    password: str
    address: str

    @property
    def url(self) -> str:
        """The URL of its database over the socket, which can be reached from every network namespace."""
        return f"postgresql://postgres:{self.password}@/postgres?host={self.folder}"

    @property
    def network_url(self) -> str:
        """The same over the network."""
        return f"postgresql://postgres:{self.password}@{self.address}/postgres"


@contextlib.contextmanager
def cluster(
    *, network: str | None = None, address: str = "", clients: str = "", durable: bool = False
) -> Iterator[Cluster]:
    """Have a server with the tables of the newest schema.

    Args:
        network: The network namespace it runs in.
        address: Where it listens there, beside its socket.
        clients: The addresses that may connect there.
        durable: Whether it waits for the disk.
    """
    found = programs()
    assert found is not None
    password = f"sesame-{secrets.token_hex(16)}"
    # the path of a socket must be short, which the folders of tests are not
    folder = Path(tempfile.mkdtemp(prefix="bm-pg-", dir="/tmp"))
    user, group = account()
    given = folder / "password"
    given.write_text(password)
    if user is not None and group is not None:
        for path in (folder, given):
            os.chown(path, user, group)
    data = folder / "data"
    try:
        subprocess.run(
            [
                *(found / "initdb", "-D", data, "--auth=scram-sha-256", f"--pwfile={given}", "--username=postgres"),
                *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            user=user,
            group=group,
            extra_groups=others(),
        )
        given.unlink()
        if address:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {clients} scram-sha-256\n")
        options = {**SETTINGS, **({} if durable else HASTY), "listen_addresses": address}
        unit = Unit(
            "postgres",
            [found / "postgres", "-D", data, "-k", folder, *(f"--{name}={value}" for name, value in options.items())],
            folder=folder,
            environ=os.environ,
            network=network,
            user=user,
            group=group,
            # connections are ended, not waited for
            end=signal.SIGINT,
        )
        try:
            made = Cluster(unit, folder, password, address)
            wait_for(made)
            upgrade(made.url)
            yield made
        finally:
            unit.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(server: Cluster) -> None:
    """Wait until it answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(server.url).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, server.unit.log.read_text()
            time.sleep(0.05)
