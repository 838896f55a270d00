"""Validations that are in the database without anybody having run them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy import update as change

from runner.report.page import validation_page
from runner.service.database import jobs
from runner.service.database.schema import events, new_id, now
from runner.service.database.schema import jobs as job_table
from runner.validation import Verdict
from tests.service.http.servers import Execution, Tenant


def judged(tenant: Tenant, verdict: Verdict, name: str = "a validation", logs: bytes = b"worker: hello\n") -> str:
    """Return the id of a validation that has come to a verdict."""
    made = tenant.validation(name)
    execution = Execution.of(tenant.server, made)
    results = {"verdict": verdict.to_json(), "report": validation_page(verdict), "logs": logs}
    execution.end(judgement=verdict.judgement, results=results)
    return made


def failed(tenant: Tenant, error: str, name: str = "a validation") -> str:
    """Return the id of a validation that could not be judged."""
    made = tenant.validation(name)
    claim = Execution.of(tenant.server, made).claim
    tenant.server.database.run_now(jobs.settle, claim, state="failed", error=error)
    return made


def running(tenant: Tenant, name: str = "a validation") -> Execution:
    """Return a validation that runs, of which the test is the executor."""
    return Execution.of(tenant.server, tenant.validation(name))


def rollout(number: int, **differently: Any) -> tuple[str, dict[str, Any]]:
    """Return the event of a rollout that has ended."""
    body = {
        "rollout_id": f"{number // 4}-abcdefgh-{number % 4}",
        "reason": "finished",
        "rewards": {"correct": float(number % 2)},
        "origin": "environment",
        "seconds": 0.5,
        "error": "",
        "pass": "rollouts",
    }
    return "rollout", {**body, **differently}


def many(tenant: Tenant, count: int, name: str = "validation") -> None:
    """Add validations that are over, the newest with the greatest number."""

    def add(connection: Connection) -> None:
        moment = connection.execute(select(now())).scalar_one()
        shared = {
            "tenant_id": tenant.id,
            "key_id": tenant.key_id,
            "kind": "validation",
            "state": "done",
            "spec": {"split": "eval"},
            "attempts": 1,
            "max_attempts": 2,
            "fence": 1,
            "last_seq": 0,
        }
        rows = [
            {
                **shared,
                "id": new_id("job"),
                "name": f"{name} {number}",
                "judgement": ("valid", "invalid", "unjudged")[number % 3],
                "created_at": moment + number / 1000,
                "started_at": moment + number / 1000,
                "ended_at": moment + number / 1000 + 5,
            }
            for number in range(count)
        ]
        connection.execute(insert(job_table), rows)

    tenant.server.database.run_now(add)


def history(execution: Execution, told: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Append events by the thousand."""
    bodies = [*told]
    job = execution.claim.job

    def add(connection: Connection) -> None:
        last = connection.execute(select(job_table.c.last_seq).where(job_table.c.id == job.id)).scalar_one()
        rows = [
            {"job_id": job.id, "seq": last + number, "at": job.created_at, "kind": kind, "body": json.dumps(body)}
            for number, (kind, body) in enumerate(bodies, 1)
        ]
        connection.execute(insert(events), rows)
        connection.execute(change(job_table).where(job_table.c.id == job.id).values(last_seq=last + len(rows)))

    execution.server.database.run_now(add)
