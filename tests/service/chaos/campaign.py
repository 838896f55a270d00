"""A whole campaign against a site: load, kills in the middle of it, and then the question whether anything was lost."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from runner.artifact import write_artifact
from runner.service.database import jobs, schema
from runner.service.http.state import URL_KEY
from runner.service.job_token import SIGNED_WITH
from tests.service.chaos import aftermath, contents
from tests.service.chaos.deployment import Site
from tests.service.chaos.killing import kill
from tests.service.chaos.load import Load
from tests.service.chaos.unit import PATIENCE_S
from tests.service.executor.house import bundle_of

DESERVED: Final = {"Asks": "valid", "Unloadable": "invalid"}
"""What is submitted, and how it must be judged."""

LONGEST_S: Final = 200.0
"""A campaign that takes longer hangs; of a soak, what comes after its load."""

READY: Final = "benchmax serves"
AT_WORK: Final = "takes jobs"
"""What a server and an executor say when they are."""

SOAK_PAUSE_S: Final = 10.0
"""The longest pause between two kills of a soak: what is killed again before it is ready gets nothing done."""

LOG_CHARS: Final = 3_000
"""Of each log that is shown with a failure."""

Reading = Callable[[str, list[str], Mapping[str, str]], Awaitable[list[str]]]


def soak_s() -> float:
    """How many seconds of load a soak wants; 0 when this is none."""
    return float(os.environ.get("BENCHMAX_SOAK_S") or 0)


def seed_of(plain: int) -> int:
    """What chance begins with."""
    return int(os.environ.get("BENCHMAX_SOAK_SEED") or plain)


def artifacts(folder: Path) -> dict[str, str]:
    """Write what is submitted."""
    for name in DESERVED:
        write_artifact(bundle_of(name), folder / name)
    return {name: str(folder / name) for name in DESERVED}


@dataclass(frozen=True)
class Campaign:
    """See the module.

    Args:
        site: The site, with all its programs started.
        restart: Starts its programs anew, with names of their own, when all were ended; returns these names.
        read: Tells what is wrong with blobs; given the store's URL, digests and secrets.
        jobs: How many at least.
        kills: How many at most; a soak has no such limit.
        pause_s: The longest pause between two.
    """

    site: Site
    restart: Callable[[], list[str]]
    read: Reading = contents.wrong
    jobs: int = 9
    kills: int = 6
    pause_s: float = 2.5

    async def run(self, seed: int, load: Awaitable[str]) -> str:
        """Run it.

        Args:
            seed: Of what is killed when.
            load: The load; returns what it has seen.

        Returns:
            What happened.

        Raises:
            AssertionError: something was lost.
        """
        site = self.site
        site.units["server"].said(READY)
        began = time.monotonic()
        async with asyncio.timeout(soak_s() + LONGEST_S):
            running = asyncio.ensure_future(load)
            try:
                count, pause_s = (sys.maxsize, SOAK_PAUSE_S) if soak_s() else (self.kills, self.pause_s)
                killed = await kill(site, seed, count=count, at_most_s=pause_s, over=running.done)
                seen = await running
            except Exception as error:
                error.add_note("\n".join(f"{log.name}: … {log.read_text()[-LOG_CHARS:]}" for log in site.logs))
                raise
            finally:
                running.cancel()
            took = time.monotonic() - began
            told = f"seed {seed}, {took:.0f} s; killed: {', '.join(killed)}; clients: {seen}"
            wrong = await asyncio.to_thread(self._looked_at)
            named = await asyncio.to_thread(self._named)
            wrong += await self.read(site.environ["BENCHMAX_SERVE_BLOBS_URL"], named, site.secrets)
        assert not wrong, "\n".join([*wrong, told])
        return f"{told}; {len(named)} blobs"

    def _looked_at(self) -> list[str]:
        """End everything, and return what is wrong."""
        site = self.site
        self._settled()
        codes = {name: site.end(name) for name in site.units}
        wrong = [f"{name} ended with {code}" for name, code in codes.items() if code]
        wrong += aftermath.left_processes(site)
        aftermath.make_old(site)
        for name in self.restart():
            site.units[name].said(AT_WORK)
            site.end(name)
        wrong += aftermath.left_processes(site)
        wrong += aftermath.left_files(site)
        with site.database() as database:
            signing = database.read_now(_signing)
            wrong += database.read_now(aftermath.unfinished, DESERVED)
            wrong += database.read_now(aftermath.told_rows, site.secrets)
        return wrong + aftermath.told_files(site, signing)

    def _settled(self) -> None:
        """Wait until no job waits or runs: those whose clients were cut off go on without them."""
        deadline = time.monotonic() + PATIENCE_S
        with self.site.database() as database:
            while any(left := database.read_now(jobs.waiting).values()):
                assert time.monotonic() < deadline, f"{left} jobs wait and run for ever"
                time.sleep(0.1)

    def _named(self) -> list[str]:
        with self.site.database() as database:
            return sorted(database.read_now(aftermath.named_blobs))


def _signing(connection: Connection) -> dict[str, str]:
    names = (URL_KEY, SIGNED_WITH)
    rows = connection.execute(select(schema.settings).where(schema.settings.c.name.in_(names))).all()
    assert len(rows) == len(names)
    return {f"what is signed with, {row.name}": row.value for row in rows}


def load_of(site: Site, key: str, folder: Path, *, count: int) -> Load:
    """Return the load of a campaign."""
    return Load(url=site.url, key=key, artifacts=artifacts(folder), jobs=count, seconds=soak_s())
