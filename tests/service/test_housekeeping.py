"""What a server does beside answering."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from runner.service.database import jobs
from runner.service.housekeeping import keep_house
from runner.service.http.state import ServiceState
from runner.service.settings import BlobSettings, DatabaseSettings, ServerSettings, Settings
from tests.service.database.lab import claim, job_of, make_key, submit

PATIENCE_S = 60.0


async def test_a_server_without_executors_takes_jobs_from_one_that_is_lost(sqlite_url: str, tmp_path: Path) -> None:
    state = await ServiceState.open(
        Settings(
            server=ServerSettings(data=tmp_path / "data"),
            database=DatabaseSettings(url=sqlite_url),
            blobs=BlobSettings(url=f"file://{tmp_path / 'blobs'}"),
        )
    )
    try:
        job = submit(state.database, make_key(state.database))
        state.database.run_now(jobs.renew, claim(state.database, "exe_lost"), 0.001)
        house = asyncio.create_task(keep_house(state))
        try:
            deadline = time.monotonic() + PATIENCE_S
            while (now := job_of(state.database, job.id)).state != "queued":
                assert time.monotonic() < deadline, now
                await asyncio.sleep(0.01)
        finally:
            house.cancel()
            await asyncio.wait([house])
    finally:
        await state.aclose()
