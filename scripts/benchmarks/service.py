"""A service under load: event streams and uploads at once, and requests, on SQLite and on PostgreSQL.

The server, what stands for its executors and the clients are programs of their own on one machine, so the clients take
their part of its cores. A job's events are told by the very function that executors call; what an event takes is from
just before that call until a client has read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from runner.service.database import keys
from runner.service.database.database import Database
from scripts.benchmarks.table import Row
from tests.service.chaos.cluster import cluster
from tests.service.postgres import programs

STREAMS = 500
WATCHED = 100
"""Validations; each is watched by as many clients."""

UPLOADS = 50
UPLOAD_BYTES = 1 << 20
EVENTS = 100
"""Told per second, of all validations."""

SECONDS = 15
EVENT_MS = 100.0
REQUESTS = 1_500
AT_ONCE = 16


@dataclass(frozen=True)
class Place:
    """A running service.

    Args:
        name: Of its database.
        url: Where it is.
        database_url: Its database's.
        process: Its server.
        key: A key's secret.
        tenant_id, key_id: Whose and which that is.
    """

    name: str
    url: str
    database_url: str
    process: subprocess.Popen[str]
    key: str
    tenant_id: str
    key_id: str


async def measure() -> list[Row]:
    """Measure and return rows; without PostgreSQL those of SQLite alone."""
    rows = []
    with _service("SQLite", None) as place:
        rows += _measured(place)
    if programs() is None:
        return [*rows, Row("PostgreSQL", "", "is not installed here", None, "", None)]
    with cluster(durable=True) as server, _service("PostgreSQL", server.url) as place:
        rows += _measured(place)
    return rows


def _measured(place: Place) -> list[Row]:
    with _executors(place, 1) as executors:
        idle = _events(place, executors, each=1, rate=5.0, seconds=5)
    with _executors(place, WATCHED) as executors:
        loaded = _events(place, executors, each=STREAMS // WATCHED, rate=EVENTS, seconds=SECONDS, uploads=True)
    what = f"{place.name}, {STREAMS} event streams and {UPLOADS} uploads at once"
    sent = loaded["uploads"]
    errors = [*loaded["errors"], *sent["errors"]]
    for error in errors[:5]:
        print(f"error: {error}", file=sys.stderr)
    rate = sent["files"] / sent["seconds"]
    return [
        Row(f"{what}: errors", f"{len(errors)}", "0", None, "none", not errors),
        _at_most(f"{what}: an event reaches its watchers, median (ms)", _part(loaded["took"], 0.5)),
        _at_most(f"{what}: 95 of 100 events (ms)", _part(loaded["took"], 0.95)),
        _plain(f"{what}: the slowest of {len(loaded['took']):,} (ms)", f"{loaded['took'][-1]:.0f}"),
        _plain(f"{what}: of that, its executor's transaction, median (ms)", f"{_part(loaded['wrote'], 0.5):.0f}"),
        _plain(f"{what}: uploads of 1 MiB per second", f"{rate:.0f}"),
        _plain(f"{what}: cores that the server takes", f"{loaded['cores']:.2f}"),
        _plain(f"{what}: memory of the server (MiB)", f"{loaded['memory'] / 2**20:.0f}"),
        _at_most(f"{place.name}, one stream and nothing else: an event, median (ms)", _part(idle["took"], 0.5)),
        _at_most(f"{place.name}, one stream and nothing else: the slowest event (ms)", idle["took"][-1]),
        *_requests(place),
    ]


def _requests(place: Place) -> list[Row]:
    upload = json.dumps({"path": "a/file", "bytes": 5, "sha256": "0" * 64})
    asked = [
        ("a probe of the process", "GET", "/healthz", ""),
        ("a validation", "GET", f"/api/v1/validations/{_newest(place)}", ""),
        ("a page of 50 validations", "GET", "/api/v1/validations?limit=50", ""),
        ("a place for an upload", "POST", "/api/v1/uploads", upload),
    ]
    rows = []
    for what, method, path, body in asked:
        arguments = [str(REQUESTS), str(AT_ONCE), method, path, *([body] if body else [])]
        rate = json.loads(_client(place, "requests", *arguments).stdout)
        rows.append(_plain(f"{place.name}, requests per second, {AT_ONCE} at a time: {what}", f"{rate:,.0f}"))
    return rows


def _events(
    place: Place, executors: Executors, *, each: int, rate: float, seconds: int, uploads: bool = False
) -> dict[str, Any]:
    """Have events told and watched, with uploads beside them where they are wanted; return what was seen."""
    with contextlib.ExitStack() as stack:
        watching = stack.enter_context(_client_process(place, "streams", str(each)))
        assert watching.stdin is not None
        assert watching.stdout is not None
        watching.stdin.write("\n".join(executors.ids))
        watching.stdin.close()
        if watching.stdout.readline().strip() != "watching":
            raise RuntimeError(f"{len(executors.ids) * each} streams are not to be had on {place.name}")
        used, began = _processor_s(place.process.pid), time.monotonic()
        sending = None
        if uploads:
            lanes = (str(UPLOADS), str(UPLOAD_BYTES), str(seconds))
            sending = stack.enter_context(_client_process(place, "uploads", *lanes))
        wrote = executors.tell(rate, seconds)
        sent: dict[str, Any] = {}
        if sending is not None:
            assert sending.stdout is not None
            sent = json.loads(sending.stdout.read())
        cores = (_processor_s(place.process.pid) - used) / (time.monotonic() - began)
        memory = _resident(place.process.pid)
        executors.end()
        seen: dict[str, Any] = json.loads(watching.stdout.read())
    return {**seen, "wrote": wrote, "uploads": sent, "cores": cores, "memory": memory}


class Executors:
    """What stands for executors.

    Args:
        process: Its program.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self.ids = list(iter(lambda: self._out.readline().strip(), ""))
        """Ids of the validations that they have running."""

    def tell(self, rate: float, seconds: float) -> list[float]:
        """Have events told, so many a second in all; return the milliseconds that writing each took, in order."""
        self._in.write(f"{rate} {seconds}\n")
        self._in.flush()
        took: list[float] = json.loads(self._out.readline())
        return took

    def end(self) -> None:
        """Have all validations end."""
        self._in.close()


@contextlib.contextmanager
def _executors(place: Place, count: int) -> Iterator[Executors]:
    command = [sys.executable, "-m", "scripts.benchmarks.drivers.service_events"]
    command += [place.database_url, place.tenant_id, place.key_id, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Executors(process)


def _client_command(place: Place, what: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "scripts.benchmarks.drivers.service_client", what, place.url, place.key, *arguments]


def _client(place: Place, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_client_command(place, what, arguments), check=True, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def _client_process(place: Place, what: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = _client_command(place, what, arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@contextlib.contextmanager
def _service(name: str, database_url: str | None) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="benchmax-bench-") as folder:
        data = Path(folder, "data")
        url = database_url or f"sqlite:///{data}/benchmax.db"
        program = str(Path(sys.executable).with_name("benchmax"))
        command = [program, "serve", "--json", "--port", "0", "--executors", "0", "--data", str(data)]
        with (
            Path(folder, "log").open("w") as log,
            subprocess.Popen(
                command,
                env={**os.environ, "BENCHMAX_SERVE_DATABASE_URL": url},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                facts = json.loads(process.stdout.readline())
                key, secret = _key(url)
                yield Place(name, facts["url"], url, process, secret, key.tenant_id, key.id)
            finally:
                process.terminate()


def _key(url: str) -> tuple[Any, str]:
    many = 1 << 50
    with contextlib.closing(Database.open(url, threads=1)) as database:
        return database.run_now(
            keys.create,
            tenant="bench",
            name="bench",
            scopes={"submit", "read"},
            max_bytes=many,
            max_jobs=many,
            max_running=many,
            requests_per_minute=many,
        )


def _newest(place: Place) -> str:
    from runner.service.database import jobs

    with contextlib.closing(Database.open(place.database_url, threads=1)) as database:
        return database.read_now(jobs.page, place.tenant_id, kind="validation", limit=1)[0].id


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[int(part * (len(ordered) - 1))]


def _at_most(what: str, ms: float) -> Row:
    return Row(what, f"{ms:.0f}", f"{EVENT_MS:.0f}", ms / EVENT_MS, f"≤ {EVENT_MS:.0f} ms", ms <= EVENT_MS)


def _plain(what: str, shown: str) -> Row:
    return Row(what, shown, "", None, "", None)
