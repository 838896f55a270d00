"""A service as `benchmax serve` runs it, and the commands of its clients."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.service.database import keys
from runner.service.database.database import Database
from tests.integration.command_line import PROGRAM

PATIENCE_S = 120.0
QUICK = {"BENCHMAX_SERVE_EXECUTORS_LEASE_S": "2", "BENCHMAX_SERVE_LIMITS_DRAIN_S": "1"}
"""Pauses that a test need not wait for long."""


@dataclass
class Service:
    """A running service.

    Args:
        url: Where it is.
        data: Its folder.
        process: Its server.
        facts: What it said of itself.
        log: What it wrote to standard error.
    """

    url: str
    data: Path
    process: subprocess.Popen[bytes]
    facts: dict[str, Any]
    log: Path

    def key(self, **options: Any) -> str:
        """Make a key and return its secret."""
        given = {
            "tenant": "acme",
            "name": "tests",
            "scopes": ("submit", "read"),
            "max_bytes": 1 << 30,
            "max_jobs": 100,
            "max_running": 8,
            "requests_per_minute": 100_000,
            **options,
        }
        with contextlib.closing(Database.open(f"sqlite:///{self.data}/benchmax.db", threads=1)) as database:
            return database.run_now(lambda connection: keys.create(connection, **given))[1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it end, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def events(self) -> list[dict[str, Any]]:
        """What it has logged, beside what it said at its start."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@contextlib.contextmanager
def serving(
    data: Path, cache: Path, *options: str, port: int = 0, environ: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """Run `benchmax serve` with a data folder."""
    log = data.with_name(f"{data.name}.log")
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [str(PROGRAM), "serve", "--json", "--data", str(data), "--port", str(port), *options],
            env={**os.environ, "BENCHMAX_CACHE_DIR": str(cache), **QUICK, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        facts = json.loads(line)
        yield Service(facts["url"], data, process, facts, log)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
