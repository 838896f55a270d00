"""A whole service as it is deployed: server, executors and what they share, each kept running however it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.service.database import keys
from runner.service.database.database import Database, upgrade
from tests.integration.command_line import PROGRAM
from tests.service.chaos.cluster import Cluster
from tests.service.chaos.unit import Unit
from tests.service.cli.running import free_port

LEASE_S = 3
ATTEMPTS = 10
"""More than there are kills: no job fails for them."""


@dataclass
class Site:
    """See the module.

    Args:
        folder: Where everything of it is.
        url: The server's.
        database_url: The database's, as who tests reaches it.
        environ: Of its programs.
        secrets: What must never be told, by what it is.
        cluster: The database's server; `None` for SQLite.
        units: Its programs by their names.
        disturbances: What else may happen to it, by name.
    """

    folder: Path
    url: str
    database_url: str
    environ: Mapping[str, str]
    secrets: dict[str, str]
    cluster: Cluster | None = None
    units: dict[str, Unit] = field(default_factory=dict)
    disturbances: dict[str, Callable[[random.Random], None]] = field(default_factory=dict)

    @property
    def data(self) -> list[Path]:
        """The data folder of each machine."""
        return sorted(self.folder.glob("data-*"))

    @property
    def logs(self) -> list[Path]:
        """What its programs have said."""
        own = [unit.log for unit in self.units.values()]
        return own if self.cluster is None else [*own, self.cluster.unit.log]

    def start(self, name: str, *command: str, machine: str = "here", network: str | None = None) -> Unit:
        """Start one of its programs.

        Args:
            name: What it is called.
            command: What `benchmax` is told.
            machine: Whose data folder it has.
            network: The network namespace that it runs in.
        """
        data = self.folder / f"data-{machine}"
        unit = self.units[name] = Unit(
            name,
            [PROGRAM, *command, "--data", data],
            folder=self.folder,
            environ=self.environ,
            network=network,
        )
        return unit

    def end(self, name: str) -> int:
        """End one of its programs in order; return its exit code."""
        return self.units[name].end()

    def database(self) -> contextlib.closing[Database]:
        """Open its database."""
        return contextlib.closing(Database.open(self.database_url, threads=2))

    def key(self) -> str:
        """Make a key and return its secret, which is one of those that must never be told."""
        with self.database() as database:
            _, secret = database.run_now(
                keys.create,
                tenant="acme",
                name="chaos",
                scopes={"submit", "read"},
                max_bytes=1 << 34,
                max_jobs=100_000,
                max_running=100,
                requests_per_minute=1_000_000,
            )
        self.secrets[f"API key {len(self.secrets)}"] = secret
        return secret

    def executors(self) -> list[int]:
        """Process ids of all executors, also of those that the server has started."""
        kinds = (f"{PROGRAM} executor ", "-m runner.service.executor ")
        return sorted(pid for pid, command, _ in self.processes() if any(kind in command for kind in kinds))

    def processes(self) -> list[tuple[int, str, str]]:
        """Processes of the site, workers too, with their commands and environments."""
        found = []
        mark, folder = f"{MARK}={self.environ[MARK]}", str(self.folder)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    environ = (entry / "environ").read_bytes().replace(b"\0", b"\n").decode("utf-8", "replace")
                except OSError:
                    continue
                if mark in environ or folder in environ or folder in command:
                    found.append((int(entry.name), command, environ))
        return found

    def victims(self) -> dict[str, Callable[[random.Random], None]]:
        """What may be killed, and how."""
        found: dict[str, Callable[[random.Random], None]] = {
            "server": lambda chance: self.units["server"].kill(),
            "executor": self._kill_executor,
            **self.disturbances,
        }
        if self.cluster is not None:
            found["database"] = lambda chance: self._kill_database()
        return found

    def _kill_executor(self, chance: random.Random) -> None:
        found = self.executors()
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(found), 9)

    def _kill_database(self) -> None:
        assert self.cluster is not None
        self.cluster.unit.kill()


MARK = "CHAOS_SITE"
"""Variable that says whose a process is."""


@contextlib.contextmanager
def site(
    folder: Path,
    cache: Path,
    *,
    model_url: str = "",
    server: Cluster | None = None,
    network_database: bool = False,
    blobs_url: str = "",
    host: str = "127.0.0.1",
    environ: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """Have a site without any program yet.

    Args:
        folder: Where everything of it is; a new one.
        cache: Where venvs are kept.
        model_url: Of the model; the mock model of each executor when empty.
        server: The database's server; SQLite when `None`.
        network_database: Whether the programs reach it over the network.
        blobs_url: Where blobs are; the data folder of the machine `here` when empty.
        host: Where the server listens.
        environ: Further variables.
    """
    folder.mkdir()
    temporary = folder / "tmp"
    temporary.mkdir()
    sqlite = f"sqlite:///{folder}/data-here/benchmax.db"
    model_key = f"sk-{secrets.token_hex(20)}"
    port = free_port()
    if server is None:
        upgrade(sqlite)
        url = own = sqlite
    else:
        url = server.url
        own = server.network_url if network_database else url
    variables = {
        MARK: secrets.token_hex(8),
        "TMPDIR": str(temporary),
        "BENCHMAX_CACHE_DIR": str(cache),
        "BENCHMAX_SERVE_HOST": host,
        "BENCHMAX_SERVE_PORT": str(port),
        "BENCHMAX_SERVE_DATABASE_URL": own,
        "BENCHMAX_SERVE_BLOBS_URL": blobs_url or f"file://{folder}/data-here/blobs",
        "BENCHMAX_SERVE_EXECUTORS_LEASE_S": str(LEASE_S),
        "BENCHMAX_SERVE_EXECUTORS_ATTEMPTS": str(ATTEMPTS),
        "BENCHMAX_SERVE_LIMITS_DRAIN_S": "2",
        "BENCHMAX_SERVE_BINDINGS": json.dumps(
            {"judge": {"base_url": model_url or "http://127.0.0.1:9/v1", "api_key_env": "CHAOS_JUDGE_KEY"}}
        ),
        "CHAOS_JUDGE_KEY": f"sk-{secrets.token_hex(20)}",
        **(environ or {}),
    }
    if model_url:
        variables |= {
            "BENCHMAX_SERVE_MODEL_NAME": "mock-model",
            "BENCHMAX_SERVE_MODEL_BASE_URL": model_url,
            "BENCHMAX_SERVE_MODEL_API_KEY_ENV": "CHAOS_MODEL_KEY",
            "CHAOS_MODEL_KEY": model_key,
        }
    hidden = {name: variables[name] for name in variables if name.endswith(("_KEY", "_SECRET_ACCESS_KEY"))}
    if server is not None:
        hidden["the database's password"] = server.password
    made = Site(
        folder=folder,
        url=f"http://{host}:{port}",
        database_url=url,
        environ={**os.environ, **variables},
        secrets=hidden,
        cluster=server,
    )
    try:
        yield made
    finally:
        for unit in made.units.values():
            unit.end()
