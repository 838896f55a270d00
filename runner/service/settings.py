"""How a service is set up: one value, the same for its HTTP server and its executors.

Every field says what it is in its metadata, from which its place in a file, its variable and its entry in the
documentation follow. `configuration` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmax.auth import StaticBearerAuth
from runner.models import ModelChoice, parse_model

GIB: Final = 1024**3
MIB: Final = 1024**2
KIB: Final = 1024

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8321


def _text(default: str, text: str, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"text": text})


def _number(default: float, text: str, *, least: float = 1, most: float | None = None) -> Any:
    return field(default=default, metadata={"text": text, "least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the HTTP server listens, and what it calls itself."""

    host: str = _text(DEFAULT_HOST, "address to listen at")
    port: int = _number(DEFAULT_PORT, "port to listen at; 0 takes a free one", least=0, most=65535)
    public_url: str = _text("", "the service's URL for its clients, without a path; `http://HOST:PORT` when empty")
    data: Path = field(
        default=Path(),
        metadata={"text": "folder for the database and the blobs where these have no URL; the user's data folder"},
    )
    trusted_proxies: tuple[str, ...] = field(
        default=(),
        metadata={"text": "addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """Which database the server and its executors share."""

    url: str = _text("", "`sqlite:///FILE` or `postgresql://…`; a file in the data folder when empty", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSettings:
    """Where uploads and results are kept."""

    url: str = _text("", "`file:///FOLDER` or `s3://BUCKET/PREFIX?…`; a folder in the data folder when empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """The processes that run what is uploaded."""

    count: int = _number(1, "executors that the server starts beside itself", least=0, most=256)
    insecure_sandbox: bool = field(
        default=False,
        metadata={"text": "go on where the sandbox that uploads need cannot be had; they can then read this machine"},
    )
    lease_s: float = _number(30.0, "seconds after which a silent executor's job is given to another", least=2)
    attempts: int = _number(2, "executors that may be lost over one job before it has failed", most=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The model that answers rollouts."""

    name: str = _text("mock", "`mock`, `mock:SCRIPT` or `local`; with `base_url` any name")
    base_url: str = _text("", "an OpenAI-compatible server, including /v1")
    api_key_env: str = _text("", "variable that holds the key for it")
    key: str = field(default="", repr=False, metadata={"from": "api_key_env"})

    def choice(self) -> ModelChoice:
        """Return what is to be asked, and where.

        Raises:
            UsageError: there is no such model.
        """
        return parse_model(self.name, base_url=self.base_url or None)

    def auth(self) -> StaticBearerAuth | None:
        """Return its credential source; `None` where none was named."""
        return StaticBearerAuth(self.key) if self.key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSettings:
    """What one `InjectedAuth` name of bundles leads to: a judge, an embedder."""

    base_url: str = _text("", "an OpenAI-compatible server, including /v1")
    api_key_env: str = _text("", "variable that holds the key for it")
    models: tuple[str, ...] = field(default=(), metadata={"text": "models of it that clients may ask for here"})
    key: str = field(default="", repr=False, metadata={"from": "api_key_env"})

    def auth(self) -> StaticBearerAuth | None:
        """Return its credential source; `None` where none was named."""
        return StaticBearerAuth(self.key) if self.key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What clients may use, and what a key gets that says nothing else."""

    upload_bytes: int = _number(256 * MIB, "one uploaded file")
    body_bytes: int = _number(1 * MIB, "the JSON of one request")
    header_bytes: int = _number(32 * KIB, "all headers of one request", least=1024)
    files: int = _number(1000, "data files of one job")
    upload_url_s: float = _number(3600.0, "how long the URL of an upload is good")
    silence_s: float = _number(30.0, "how long the body of a request, or whoever reads an answer, may pause", least=0.1)
    head_s: float = _number(20.0, "from the first byte of a request to the end of its headers", least=0.1)
    keep_alive_s: float = _number(15.0, "between two comments in an event stream that has no events", least=0.1)
    requests_at_once: int = _number(1024, "requests under way, without event streams")
    uploads_at_once: int = _number(128, "uploads under way")
    streams: int = _number(4096, "event streams")
    streams_per_key: int = _number(1024, "event streams of one key")
    sessions_per_key: int = _number(64, "model sessions of one key")
    session_s: float = _number(3600.0, "how long a model session lives at most")
    browser_session_s: float = _number(43_200.0, "how long a browser stays signed in", least=60)
    drain_s: float = _number(30.0, "how long a server that is to end waits for what is under way", least=0)
    rollout_s: float = _number(600.0, "what a job may ask for as seconds of one rollout")
    context_tokens: int = _number(32_768, "what a job may ask for as tokens of one rollout")
    batch_rollouts: int = _number(64, "rollouts of one batch")
    job_s: float = _number(3600.0, "how long one job may run")
    job_events: int = _number(20_000, "events kept of one job; of those beyond, the last ones are")
    job_log_bytes: int = _number(4 * MIB, "output kept of one job")
    key_bytes: int = _number(10 * GIB, "stored uploads of one key")
    key_jobs: int = _number(100, "jobs of one key that are not over")
    key_running: int = _number(4, "jobs of one key that run at the same time")
    key_requests_per_minute: int = _number(600, "requests of one key per minute")
    denied_per_minute: int = _number(60, "requests with a wrong key from one address per minute")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long things are kept."""

    uploads_days: float = _number(30.0, "days after which an upload that no job needs is deleted", least=0.01)
    jobs_days: float = _number(90.0, "days after which a job that is over is deleted with its results", least=0.01)
    audit_days: float = _number(365.0, "days for which the audit trail is kept", least=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything there is to be set of a service.

    Args:
        server, database, blobs, executors, model, limits, retention: One part each.
        bindings: What `InjectedAuth` names of bundles lead to.
    """

    server: ServerSettings = field(default_factory=ServerSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    blobs: BlobSettings = field(default_factory=BlobSettings)
    executors: ExecutorSettings = field(default_factory=ExecutorSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    bindings: Mapping[str, BindingSettings] = field(default_factory=lambda: MappingProxyType({}))
    limits: LimitSettings = field(default_factory=LimitSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)

    @property
    def public_url(self) -> str:
        """The service's URL for its clients, without a final slash."""
        server = self.server
        host = f"[{server.host}]" if ":" in server.host else server.host
        return server.public_url.rstrip("/") or f"http://{host}:{server.port}"

    @property
    def database_url(self) -> str:
        """The database's URL."""
        return self.database.url or f"sqlite:///{self.server.data / 'benchmax.db'}"

    @property
    def blobs_url(self) -> str:
        """The blob store's URL."""
        return self.blobs.url or f"file://{self.server.data / 'blobs'}"


SECTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "server": ServerSettings,
        "database": DatabaseSettings,
        "blobs": BlobSettings,
        "executors": ExecutorSettings,
        "model": ModelSettings,
        "limits": LimitSettings,
        "retention": RetentionSettings,
    }
)
"""The parts that are tables of their own in a file; `bindings` has a table for each name."""
