"""What has to be so when everything is over, whatever was killed: lists of what is wrong, empty when all is well."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection, select

from runner.service.database import schema
from tests.service.chaos.deployment import MARK, Site

GONE_S: Final = 15.0
"""How long processes of what was ended may take to be gone."""

DAY_S: Final = 86_400.0
_SIGNED: Final = re.compile(rb"signature=(?!\[redacted\])")


def unfinished(connection: Connection, expected: Mapping[str, str]) -> list[str]:
    """Jobs that have not exactly one end, or another one than what was submitted deserves.

    Args:
        connection: In a transaction.
        expected: The judgement of validations, by what their names begin with.
    """
    wrong = []
    for job in connection.execute(select(schema.jobs)):
        rows = connection.execute(
            select(schema.events).where(schema.events.c.job_id == job.id).order_by(schema.events.c.seq)
        ).all()
        who = f"{job.kind} {job.name} ({job.id}, attempt {job.attempts}): {job.state} {job.judgement} {job.error}"
        if job.state not in schema.ENDED_STATES or job.ended_at is None or job.lease_until is not None:
            wrong.append(f"{who}: is not over")
        if [row.seq for row in rows] != [*range(1, job.last_seq + 1)]:
            wrong.append(f"{who}: events {[row.seq for row in rows]} of {job.last_seq}")
        ends = [row for row in rows if row.kind == "end"]
        if len(ends) != 1 or rows[-1].kind != "end":
            wrong.append(f"{who}: its end was told {len(ends)} times, and last {rows[-1:]}")
        elif json.loads(ends[0].body) != {"state": job.state, "judgement": job.judgement, "error": job.error}:
            wrong.append(f"{who}: its end was told as {ends[0].body}")
        if job.kind == "validation":
            wrong += [f"{who}: {text}" for text in _misjudged(job, rows, expected)]
        elif job.state not in ("done", "cancelled"):
            wrong.append(f"{who}: is neither done nor cancelled")
    return wrong


def _misjudged(job: Any, rows: Any, expected: Mapping[str, str]) -> Iterator[str]:
    deserved = expected[job.name.rpartition("-")[0]]
    if (job.state, job.judgement) != ("done", deserved):
        yield f"deserves {deserved}"
    elif not (job.verdict_blob and job.report_blob and job.logs_blob):
        yield "has no results"
    told = [json.loads(row.body)["judgement"] for row in rows if row.kind == "verdict"]
    if told[-1:] != [deserved]:
        yield f"its verdict was told as {told}"


def named_blobs(connection: Connection) -> set[str]:
    """Return the digests of all blobs that a row needs."""
    columns = (
        schema.uploads.c.blob,
        schema.job_blobs.c.digest,
        schema.jobs.c.verdict_blob,
        schema.jobs.c.report_blob,
        schema.jobs.c.logs_blob,
    )
    return {digest for column in columns for digest in connection.execute(select(column)).scalars() if digest}


def told_rows(connection: Connection, secrets: Mapping[str, str]) -> list[str]:
    """Rows that hold a secret."""
    wrong = []
    for table in schema.metadata.sorted_tables:
        for row in connection.execute(select(table)):
            text = "\n".join(str(value) for value in row)
            wrong += [f"a row of {table.name} tells {what}" for what, secret in secrets.items() if secret in text]
    return wrong


def told_files(site: Site, signing: Mapping[str, str]) -> list[str]:
    """Logs and files of the data folders that hold a secret.

    Args:
        site: Whose.
        signing: What the service signs with, which nothing but its database may hold.
    """
    wrong = []
    for log in site.logs:
        content = log.read_bytes()
        wrong += [
            f"{log.name} tells {what}"
            for what, secret in {**site.secrets, **signing}.items()
            if secret.encode() in content
        ]
        if found := _SIGNED.search(content):
            wrong.append(f"{log.name} has a signature: {content[found.start() - 200 : found.end() + 20]!r}")
    for data in site.data:
        for path in data.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                held = site.secrets if path.name.startswith("benchmax.db") else {**site.secrets, **signing}
                wrong += [f"{path} tells {what}" for what, secret in held.items() if secret.encode() in content]
    return wrong


def told_processes(site: Site) -> list[str]:
    """Processes whose command line, or whose environment as a worker, holds a secret."""
    wrong = []
    for pid, command, environ in site.processes():
        shown = command if f"{MARK}=" in environ else f"{command}\n{environ}"
        wrong += [
            f"process {pid}, {command[:80]}, tells {what}" for what, secret in site.secrets.items() if secret in shown
        ]
    return wrong


def left_processes(site: Site) -> list[str]:
    """Processes that are still there after all programs were ended."""
    deadline = time.monotonic() + GONE_S
    while left := site.processes():
        if time.monotonic() > deadline:
            return [f"{pid} {command} is left" for pid, command, _ in left]
        time.sleep(0.05)
    return []


def make_old(site: Site) -> None:
    """Make what was left behind look as if it had been left a day ago, so that the next start may clear it away."""
    then = time.time() - DAY_S
    for data in site.data:
        for parent in ("executors", "blobs/incoming", "spool"):
            for path in (data / parent).glob("*"):
                os.utime(path, (then, then))


def left_files(site: Site) -> list[str]:
    """Temporary files and folders that are still there after a fresh start has ended."""
    wrong = [str(path) for path in (site.folder / "tmp").iterdir()]
    for data in site.data:
        for parent in ("executors", "blobs/incoming", "spool"):
            wrong += [str(path) for path in (data / parent).glob("*")]
    return wrong
