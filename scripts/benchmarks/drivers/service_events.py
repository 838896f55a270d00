"""Stands for executors: has validations running, and tells events of them as executors do.

Arguments: the database's URL, tenant and key of the validations, and how many. Prints their ids, one a line, and an
empty line. Each line of standard input, `RATE SECONDS`, has it tell so many events a second in all; then it prints the
milliseconds that writing each took, as a JSON list. At the end of its input all are over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from runner.service.database import executors, jobs
from runner.service.database.database import Database
from runner.service.database.rows import Claim

LEASE_S = 3600.0


async def main() -> None:
    """Do as the module says."""
    url, tenant_id, key_id, count = sys.argv[1:]
    database = Database.open(url)
    executor_id = await database.run(executors.register, host="bench", pid=1)
    claims: list[Claim] = []
    for number in range(int(count)):
        await database.run(
            jobs.submit,
            tenant_id=tenant_id,
            key_id=key_id,
            kind="validation",
            name=f"validation {number}",
            spec={"split": "eval"},
            inputs={},
        )
        claim = await database.run(jobs.claim, executor_id, LEASE_S)
        assert claim is not None
        claims.append(claim)
        print(claim.job.id)
    print(flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        rate, seconds = map(float, line.split())
        print(json.dumps(await tell(database, claims, rate, seconds)), flush=True)
    for claim in claims:
        await database.run(jobs.settle, claim, state="done", judgement="valid")
    database.close()


async def tell(database: Database, claims: list[Claim], rate: float, seconds: float) -> list[float]:
    """Tell events, evenly, each in a transaction of its own; return the milliseconds that each took, in order."""
    began = time.monotonic()
    took: list[float] = []

    async def write(claim: Claim) -> None:
        sent = time.monotonic()
        body = {"stream": "log", "level": 20, "logger": "bench", "text": "a line " * 20, "sent": sent}
        await database.run(jobs.append, claim, [("log", json.dumps(body))])
        took.append((time.monotonic() - sent) * 1000)

    async with asyncio.TaskGroup() as writing:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            writing.create_task(write(claims[number % len(claims)]))
    return sorted(took)


if __name__ == "__main__":
    asyncio.run(main())
