"""What the store functions give back: one frozen value per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["validation", "batch"]
State = Literal["queued", "running", "done", "failed", "cancelled"]
Ended = Literal["done", "failed", "cancelled"]
Judgement = Literal["valid", "invalid", "unjudged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """An API key, without its secret. Times in seconds since 1970."""

    id: str
    tenant_id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    max_bytes: int
    max_jobs: int
    max_running: int
    requests_per_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a key has taken of its quotas: bytes of uploads kept or announced, open jobs, and of these the running."""

    bytes: int
    jobs: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRow:
    """One upload of a tenant to a path; `blob` and `bytes` are there once it is stored."""

    id: str
    tenant_id: str
    key_id: str
    path: str
    mime: str
    state: Literal["pending", "stored"]
    expected_bytes: int | None
    expected_sha256: str | None
    blob: str | None
    bytes: int | None
    created_at: float
    stored_at: float | None
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job. `fence` grows with each change of who may write to it, `last_seq` with each event."""

    id: str
    tenant_id: str
    key_id: str
    kind: Kind
    name: str
    state: State
    spec: Mapping[str, Any]
    judgement: Judgement | None
    error: str | None
    verdict_blob: str | None
    report_blob: str | None
    logs_blob: str | None
    attempts: int
    max_attempts: int
    executor_id: str | None
    fence: int
    lease_until: float | None
    cancel_requested_at: float | None
    last_seq: int
    created_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to write to a job, for as long as its lease lasts and nobody else has a greater fence."""

    job: JobRow
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event of a job; `body` is JSON text."""

    job_id: str
    seq: int
    at: float
    kind: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Who did what to what, and how it ended."""

    id: int
    at: float
    tenant_id: str | None
    key_id: str | None
    action: str
    object: str
    outcome: str
    request_id: str
    address: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRow:
    """An executor process, and when it was last heard of."""

    id: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    stopped_at: float | None
