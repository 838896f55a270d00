"""A process that takes jobs: `taking.py URL NAME MODE`, where MODE is `all`, `hold` or `tell`.

`all` claims and settles until nothing is left, and prints the ids. `hold` claims one job, says so, and stays in the
transaction until it is killed. `tell` claims one job and tells events of it in slow transactions, one right after the
other, until it is killed.
"""

from __future__ import annotations

import signal
import sys
import time

from sqlalchemy import Connection

from runner.service.database import jobs
from runner.service.database.database import Database
from runner.service.database.rows import Claim

LEASE_S = 600.0
SLOW_S = 0.02


def main() -> None:
    url, name, mode = sys.argv[1:]
    database = Database.open(url)
    if mode == "hold":
        database.run_now(hold, name)
    print("ready", flush=True)
    if mode == "tell":
        claimed = database.run_now(jobs.claim, name, LEASE_S)
        assert claimed is not None
        while True:
            database.run_now(tell, claimed)
    sys.stdin.readline()
    while (claimed := database.run_now(jobs.claim, name, LEASE_S)) is not None:
        database.run_now(jobs.append, claimed, [("log", "{}")])
        database.run_now(jobs.settle, claimed, state="done", judgement="valid")
        print(claimed.job.id, flush=True)
    database.close()


def hold(connection: Connection, name: str) -> None:
    claimed = jobs.claim(connection, name, LEASE_S)
    assert claimed is not None
    jobs.append(connection, claimed, [("log", "{}")])
    print("ready", flush=True)
    signal.pause()


def tell(connection: Connection, claimed: Claim) -> None:
    jobs.append(connection, claimed, [("log", "{}")])
    time.sleep(SLOW_S)


if __name__ == "__main__":
    main()
