"""For whoever runs the service: whether it lives, whether it should be asked, and what it counts.

None of it needs a key, and none of it says anything of a tenant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from sqlalchemy import Connection, func, select
from starlette.responses import JSONResponse, Response

from runner.errors import DatabaseError
from runner.service.blobs.store import BlobError
from runner.service.client.wire import Health, Readiness
from runner.service.database.schema import jobs
from runner.service.http.bounds import READY_S
from runner.service.http.errors import errors
from runner.service.http.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(tags=["operations"])

REMEMBERED_S: Final = 1.0
"""How long what was found out is good: probes of several balancers must not become a load."""


@router.get("/healthz", response_model=Health, responses=errors())
async def healthz() -> Health:
    """Answer, which is what is asked."""
    return Health(status="ok")


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={**errors(), 503: {"model": Readiness, "description": "Requests should be sent elsewhere."}},
)
async def readyz(request: Request) -> Response:
    """Say whether requests should be sent here."""
    state: ServiceState = request.app.state.service
    checks = await _checked(request.app.state, state)
    if state.drain.begun:
        status = "draining"
    else:
        status = "ready" if all(found == "ok" for found in checks.values()) else "unready"
    answer = Readiness.model_validate({"status": status, "checks": checks})
    return JSONResponse(answer.model_dump(), 200 if status == "ready" else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **errors(),
        200: {
            "description": "Counters, as Prometheus reads them.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
)
async def get_metrics(request: Request) -> Response:
    """Return what is counted."""
    state: ServiceState = request.app.state.service
    counts = await state.database.read(_count_jobs)
    return Response(state.metrics.text(counts), headers={"Content-Type": CONTENT_TYPE})


class Remembered:
    """What a readiness probe found out a moment ago."""

    def __init__(self) -> None:
        self.at = float("-inf")
        self.checks: dict[str, str] = {}
        self.lock = asyncio.Lock()


async def _checked(where: object, state: ServiceState) -> dict[str, str]:
    remembered: Remembered = where.readiness  # type: ignore[attr-defined]  # set by the application's factory
    async with remembered.lock:
        if time.monotonic() - remembered.at > REMEMBERED_S:
            database, blobs = await asyncio.gather(
                _look(state, "database", state.database.read(_ask)), _look(state, "blobs", state.blobs.check())
            )
            remembered.checks = {"database": database, "blobs": blobs}
            remembered.at = time.monotonic()
        return remembered.checks


async def _look(state: ServiceState, what: str, work: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(READY_S):
            await work
    except TimeoutError:
        return f"no answer within {READY_S:g} s"
    except (DatabaseError, BlobError) as error:
        # the text may name hosts and folders, which are nobody's business but the operator's
        state.log.tell(30, "unready", what=what, error=str(error))
        return "failed"
    return "ok"


def _ask(connection: Connection) -> None:
    connection.execute(select(1)).scalar_one()


def _count_jobs(connection: Connection) -> dict[tuple[str, str], int]:
    rows = connection.execute(select(jobs.c.kind, jobs.c.state, func.count()).group_by(jobs.c.kind, jobs.c.state))
    return {(kind, state): count for kind, state, count in rows.tuples()}
