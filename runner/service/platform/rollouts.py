"""Rollouts for the published client: a batch is a job, and its events are the lines of one stream.

A client that goes away has its job cancelled; it would not come back for it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runner.errors import ConflictError, QuotaError
from runner.service.client.wire import Split
from runner.service.database import jobs, uploads
from runner.service.database.rows import JobRow
from runner.service.executor.inputs import DATA, METADATA, PICKLE
from runner.service.http.access import Caller, Submitter
from runner.service.http.errors import HttpError
from runner.service.http.feed import END, Told, Watch
from runner.service.http.state import ServiceState
from runner.service.http.streams import ALIVE, EventStream
from runner.service.offer import UnknownModelError, asked
from runner.service.platform.storage import is_path

KEEP_ALIVE_S: Final = 10.0
"""Between two lines at most, whatever the settings say of other streams: what is in the way may give up after 15 s."""

TOLD: Final = frozenset({"batch_started", "rollout_completed", "batch_completed", "worker_error"})
"""Kinds of events that the client reads; the others are for who looks at the job."""


class Files(BaseModel):
    """The two files of an artifact, by the paths that `upload-url` gave."""

    env_cls_path: Annotated[str, Field(max_length=1024)]
    env_metadata_path: Annotated[str, Field(max_length=1024)]


class Model(BaseModel):
    """Which model is asked."""

    name: Annotated[str, Field(min_length=1, max_length=200)]


class NewBatch(BaseModel):
    """What the client asks for. What else it says is of no meaning here."""

    model_config = ConfigDict(extra="ignore")

    env: Files
    model: Model
    split: Split = "eval"
    max_examples: Annotated[int, Field(ge=1, le=1)] = 1
    group_size: Annotated[int, Field(ge=1)] = 2
    max_in_flight: Annotated[int, Field(ge=1)] = 2
    max_context_tokens: Annotated[int, Field(ge=1)] | None = None
    dataset_path: Annotated[str, Field(max_length=1024)] | None = None


def router(state: ServiceState) -> APIRouter:
    """Return the route."""
    # described by whoever made its client
    made = APIRouter(include_in_schema=False)

    @made.post("/v1/rollout/batch/stream")
    async def stream(batch: NewBatch, caller: Submitter) -> Response:
        """Run one group of rollouts, and tell how it goes."""
        _check(state, batch)
        job = await state.database.run(_submit, caller, batch, int(state.settings.executors.attempts))
        return BatchStream(state, caller, job)

    return made


def _check(state: ServiceState, batch: NewBatch) -> None:
    """Refuse what is more than a client may have.

    Raises:
        HttpError: it is.
    """
    limits = state.settings.limits
    for name, value, most in (
        ("group_size", batch.group_size, limits.batch_rollouts),
        ("max_context_tokens", batch.max_context_tokens or 0, limits.context_tokens),
    ):
        if value > most:
            raise HttpError(400, "too-much", f"{name} may be at most {int(most)}, got {value}.")
    try:
        asked(state.settings, batch.model.name)
    except UnknownModelError as error:
        raise HttpError(400, "unknown-model", f"{error}.") from None


def _submit(connection: Connection, caller: Caller, batch: NewBatch, attempts: int) -> JobRow:
    """Look the files up and make the job.

    Raises:
        HttpError: one is not there, or the key has too many jobs.
    """
    inputs = {
        PICKLE: _stored(connection, caller, batch.env.env_cls_path),
        METADATA: _stored(connection, caller, batch.env.env_metadata_path),
    }
    if batch.dataset_path is not None:
        prefix = batch.dataset_path.rstrip("/")
        found = uploads.below(connection, caller.tenant_id, prefix) if is_path(prefix) else []
        if not found:
            raise HttpError(404, "not-found", f"there are no files below {batch.dataset_path[:200]!r}.")
        for upload in found:
            assert upload.blob is not None
            inputs[DATA + upload.path.removeprefix(f"{prefix}/")] = upload.blob
    spec = {
        "model": batch.model.name,
        "split": batch.split,
        "group_size": batch.group_size,
        "max_in_flight": batch.max_in_flight,
        "max_context_tokens": batch.max_context_tokens,
    }
    try:
        job = jobs.submit(
            connection,
            tenant_id=caller.tenant_id,
            key_id=caller.key.id,
            kind="batch",
            name=batch.env.env_cls_path.rpartition("/")[0] or "batch",
            spec=spec,
            inputs=inputs,
            max_attempts=attempts,
        )
    except QuotaError as error:
        raise HttpError(429, "quota", error.message, error.hint, retry_after_s=10) from None
    except ConflictError as error:
        raise HttpError(404, "not-found", error.message, error.hint) from None
    caller.audit(connection, "batch.submit", job.id)
    return job


def _stored(connection: Connection, caller: Caller, path: str) -> str:
    upload = uploads.latest(connection, caller.tenant_id, path)
    if upload is None:
        raise HttpError(404, "not-found", f"there is no file at {path[:200]!r}.", "Upload it first.")
    assert upload.blob is not None
    return upload.blob


class BatchStream(EventStream):
    """The events of a batch, as the published client reads them."""

    def __init__(self, state: ServiceState, caller: Caller, job: JobRow) -> None:
        super().__init__(state, caller, job, 0)
        self._told: set[str] = set()
        self._finished = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them; a batch that nobody hears of any more is cancelled."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if not self._finished:
                await asyncio.shield(self._cancel())

    async def tell(self, watch: Watch, send: Send) -> None:
        """Send those that the client reads, in its shape."""
        state = self.state
        while not self.gone:
            ready = await watch.after(self.at)
            lines = b"".join(self._line(event) for event in ready)
            if lines:
                await send({"type": "http.response.body", "body": lines, "more_body": True})
            if ready:
                self.at = ready[-1].seq
                self._finished = ready[-1].kind == END
            if self._finished or (not ready and watch.over):
                self._finished = True
                return
            if state.drain.begun:
                text = "the service is about to end; ask again"
                await send({"type": "http.response.body", "body": line("error", error=text), "more_body": True})
                return
            if not ready and not await watch.changed(min(KEEP_ALIVE_S, state.settings.limits.keep_alive_s)):
                await send({"type": "http.response.body", "body": ALIVE, "more_body": True})

    def _line(self, event: Told) -> bytes:
        """Return what the client is told of an event; nothing of what it does not read, or has been told."""
        body = json.loads(event.body)
        if event.kind == END:
            if body["state"] == "done":
                return b""
            kind = "cancelled" if body["state"] == "cancelled" else "error"
            return line(kind, error=body["error"] or "the batch was cancelled")
        if event.kind not in TOLD:
            return b""
        # an executor that was lost may have told it before
        name = f"{event.kind} {body.get('rollout_id', '')}"
        if name in self._told:
            return b""
        self._told.add(name)
        return line(event.kind, **body)

    async def _cancel(self) -> None:
        def cancel(connection: Connection) -> None:
            jobs.cancel(connection, self.caller.tenant_id, self.job.id)
            self.caller.audit(connection, "batch.cancel", self.job.id, detail="its client has gone")

        await self.state.database.run(cancel)


def line(kind: str, **body: object) -> bytes:
    """Return an event as a line of the stream."""
    return f"data: {json.dumps({'event': kind, **body})}\n\n".encode()
