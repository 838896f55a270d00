"""Real server processes for tests, and what tests do with them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import httpx
from sqlalchemy import Connection, func, select

from runner.service.client.wire import Scope
from runner.service.configuration import variables_of
from runner.service.database import blobs, jobs, keys
from runner.service.database.database import Database
from runner.service.database.rows import Claim, JobRow, Judgement
from runner.service.database.schema import uploads
from runner.service.settings import BlobSettings, DatabaseSettings, LimitSettings, ServerSettings, Settings
from tests.service.nursery import Child, Nursery

PATIENCE_S = 60.0
QUICK_S = 2.0
SCOPES: tuple[Scope, ...] = ("submit", "read", "models", "admin")

_numbers = count()


@dataclass
class ServerProcess:
    """A running server.

    Args:
        settings: Its settings.
        port: Where it listens.
        process: It.
        log_path: What it writes.
        database: The same database, open here.
    """

    settings: Settings
    port: int
    process: Child
    log_path: Path
    database: Database

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def blob_folder(self) -> Path:
        """Where its blobs lie, when they lie on disk."""
        return self.settings.server.data / "blobs"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask it something without a key."""
        return httpx.request(method, f"{self.url}{path}", timeout=PATIENCE_S, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Read something without a key."""
        return self.request("GET", path, **options)

    def log(self) -> list[dict[str, Any]]:
        """Everything that it has logged."""
        return [json.loads(line) for line in self.log_path.read_text("utf-8").splitlines()]

    def logged(self, request_id: str) -> list[dict[str, Any]]:
        """What it has logged of one request."""
        return [line for line in self.log() if line.get("request_id") == request_id]

    def tenant(self, **options: Any) -> Tenant:
        """Make a new tenant with a key."""
        return Tenant.make(self, f"tenant-{next(_numbers)}", **options)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Connect without any protocol."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            yield connection

    def end(self) -> int:
        """Have it end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@dataclass
class Tenant:
    """A tenant, its key, and a client that shows it.

    Args:
        server: Where.
        name: The tenant's name.
        key_id: The key's id.
        secret: The key itself.
    """

    server: ServerProcess
    name: str
    key_id: str
    secret: str
    id: str
    http: httpx.Client = field(repr=False)

    @classmethod
    def make(
        cls,
        server: ServerProcess,
        name: str,
        *,
        scopes: tuple[str, ...] = SCOPES,
        max_bytes: int = 1 << 30,
        max_jobs: int = 100,
        max_running: int = 100,
        requests_per_minute: int = 100_000,
    ) -> Self:
        """Make it."""
        row, secret = server.database.run_now(
            keys.create,
            tenant=name,
            name=f"key of {name}",
            scopes=scopes,
            max_bytes=max_bytes,
            max_jobs=max_jobs,
            max_running=max_running,
            requests_per_minute=requests_per_minute,
        )
        client = httpx.Client(
            base_url=f"{server.url}/api/v1", headers={"Authorization": f"Bearer {secret}"}, timeout=PATIENCE_S
        )
        return cls(server, name, row.id, secret, row.tenant_id, client)

    def another(self, **options: Any) -> Tenant:
        """Make another key of the same tenant."""
        return type(self).make(self.server, self.name, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def place(self, data: bytes, path: str = "file.bin", **differently: Any) -> dict[str, Any]:
        """Ask for a place for a file."""
        asked = {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **differently}
        answer = self.http.post("/uploads", json=asked)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def upload(self, data: bytes, path: str = "file.bin") -> str:
        """Upload a file; return the upload's id."""
        place = self.place(data, path)
        answer = self.http.put(place["url"], content=data)
        assert answer.status_code == 201, answer.text
        return str(place["id"])

    def validation(self, name: str = "a validation", **more: Any) -> str:
        """Submit a validation; return its id."""
        upload = self.upload(b"content")
        asked = {"name": name, "artifact": {"pickle": upload, "metadata": upload}, **more}
        answer = self.http.post("/validations", json=asked)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@dataclass
class Execution:
    """One job, executed by the test itself.

    Args:
        server: Where.
        claim: The right to.
    """

    server: ServerProcess
    claim: Claim

    @classmethod
    def of(cls, server: ServerProcess, job_id: str) -> Self:
        """Take a job; jobs of other tests that are before it stay taken."""
        while True:
            claim = server.database.run_now(jobs.claim, "exe_test", 600.0)
            assert claim is not None, "there is no such job in the queue"
            if claim.job.id == job_id:
                return cls(server, claim)

    def tell(self, *entries: tuple[str, Mapping[str, Any]]) -> None:
        """Append events."""
        written = [(kind, json.dumps(body)) for kind, body in entries]
        self.server.database.run_now(jobs.append, self.claim, written)

    def end(self, *, judgement: Judgement = "valid", results: Mapping[str, bytes] | None = None) -> JobRow:
        """Be done with it; results are put where blobs on disk lie."""
        digests = {role: self._store(data) for role, data in (results or {}).items()}
        return self.server.database.run_now(jobs.settle, self.claim, state="done", judgement=judgement, blobs=digests)

    def _store(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.server.database.run_now(blobs.pin, digest, len(data))
        path = self.server.blob_folder / digest[:2] / digest
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return digest


@contextlib.contextmanager
def running(
    nursery: Nursery,
    folder: Path,
    *,
    database_url: str = "",
    blobs_url: str = "",
    limits: LimitSettings | None = None,
    environ: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[ServerProcess]:
    """Run a server in a folder of its own, started by a nursery."""
    listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    port = listening.getsockname()[1]
    settings = Settings(
        server=ServerSettings(port=port, data=folder),
        database=DatabaseSettings(url=database_url),
        blobs=BlobSettings(url=blobs_url),
        limits=limits or LimitSettings(),
    )
    log_path = folder / "log"
    with listening, log_path.open("wb") as log:
        process = nursery.start(
            "tests.service.http.server_process",
            str(listening.fileno()),
            env={**os.environ, **variables_of(settings), **(environ or {})},
            stderr=log,
            pass_fds=[listening.fileno()],
        )
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), log_path.read_text("utf-8")
        database = Database.open(settings.database_url, threads=1)
        try:
            yield ServerProcess(settings, port, process, log_path, database)
        finally:
            database.close()
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


def strict() -> LimitSettings:
    """Limits in size and number that a test can reach; with those in time it can take as long as it takes."""
    return replace(
        LimitSettings(),
        body_bytes=4_000,
        header_bytes=4_000,
        upload_bytes=1 << 20,
        silence_s=PATIENCE_S,
        head_s=PATIENCE_S,
        keep_alive_s=0.1,
        uploads_at_once=2,
        streams=4,
        streams_per_key=3,
        denied_per_minute=20,
    )


def hasty() -> LimitSettings:
    """Limits in time that a test need not wait for long, and that nothing comes near which is not meant to."""
    return replace(LimitSettings(), silence_s=QUICK_S, head_s=QUICK_S, drain_s=QUICK_S, denied_per_minute=1_000_000)


def count_uploads(connection: Connection, tenant_id: str) -> int:
    """Return how many uploads of a tenant have their content."""
    return connection.execute(
        select(func.count()).where(uploads.c.tenant_id == tenant_id, uploads.c.state == "stored")
    ).scalar_one()


def eventually(condition: Callable[[], object]) -> None:
    """Wait for what the server does after its client has gone."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
