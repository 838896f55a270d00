"""Events of jobs for all who watch: one look at the database every few milliseconds, however many they are.

Of each watched job the newest events are held, encoded once. Who is further behind, because it has just come or reads
slowly, reads the database itself: so what is held is bounded by the jobs that are watched, and nobody waits for
anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from runner.errors import DatabaseError
from runner.service.client.wire import OVER
from runner.service.database import events
from runner.service.database.database import Database
from runner.service.database.rows import EventRow, JobRow
from runner.service.http.bounds import EVENT_ROWS, FEED_EVENTS, POLL_RETRY_S, POLL_S
from runner.service.http.metrics import Metrics
from runner.service.http.request_log import RequestLog

END: Final = "end"
"""Kind of a job's last event."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event, ready to be told.

    Args:
        seq: Its number in its job.
        kind: What kind it is of.
        body: What happened, as JSON.
        message: All of it as a message of an event stream.
    """

    seq: int
    kind: str
    body: str
    message: bytes


@dataclass(slots=True, eq=False)
class _Channel:
    """One watched job.

    Args:
        head: Number of its newest event that is known.
        over: Whether no more will come after that.
        since: What is held begins after that number.
    """

    head: int
    over: bool
    since: int
    held: deque[Told] = field(default_factory=deque)
    watches: set[Watch] = field(default_factory=set)

    def add(self, rows: list[EventRow]) -> None:
        for row in rows:
            self.held.append(told(row))
            self.head = row.seq
        while len(self.held) > FEED_EVENTS:
            self.since = self.held.popleft().seq

    def wake(self) -> None:
        for watch in self.watches:
            watch.wake()


class Watch:
    """What one reader sees of a job.

    Args:
        feed: Where the events come from.
        channel: The job's.
        job_id: The job.
    """

    def __init__(self, feed: Feed, channel: _Channel, job_id: str) -> None:
        self._feed = feed
        self._channel = channel
        self._job_id = job_id
        self._woken = asyncio.Event()

    @property
    def head(self) -> int:
        """Number of the job's newest event that is known."""
        return self._channel.head

    @property
    def over(self) -> bool:
        """Whether no event follows the newest one."""
        return self._channel.over

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._woken.set()

    async def after(self, seq: int) -> list[Told]:
        """Return the next events after a number, at once; empty for none.

        Raises:
            DatabaseError: the database does not answer.
        """
        channel = self._channel
        self._woken.clear()
        if channel.head <= seq:
            return []
        if channel.since <= seq:
            return [event for event in channel.held if event.seq > seq]
        rows = await self._feed.database.read(events.after, {self._job_id: seq}, limit=EVENT_ROWS)
        return [told(row) for row in rows]

    async def changed(self, wait_s: float) -> bool:
        """Wait until there may be more than `after` gave, or so many seconds; return whether there may be."""
        try:
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True


class Feed:
    """Looks at the database while somebody watches. Belongs to one event loop.

    Args:
        database: The database.
        metrics: Told of each look.
        log: Told of looks that fail.
        poll_s: Seconds between two.
    """

    def __init__(self, database: Database, metrics: Metrics, log: RequestLog, *, poll_s: float = POLL_S) -> None:
        self.database = database
        self._metrics = metrics
        self._log = log
        self._poll_s = poll_s
        self._channels: dict[str, _Channel] = {}
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watch(self, job: JobRow) -> Iterator[Watch]:
        """Watch a job.

        Args:
            job: As it is, or was a moment ago.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._look_for_ever(), name="feed")
        channel = self._channels.get(job.id)
        if channel is None:
            over = job.state in OVER
            channel = self._channels[job.id] = _Channel(head=job.last_seq, over=over, since=job.last_seq)
        watch = Watch(self, channel, job.id)
        channel.watches.add(watch)
        self._wanted.set()
        try:
            yield watch
        finally:
            channel.watches.discard(watch)
            if not channel.watches:
                del self._channels[job.id]

    def wake_all(self) -> None:
        """Have everybody look again, such as when the server is about to end."""
        for channel in self._channels.values():
            channel.wake()

    async def aclose(self) -> None:
        """Look no more. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            known = {job_id: channel.head for job_id, channel in self._channels.items() if not channel.over}
            if not known:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            began = loop.time()
            try:
                await self._look(known)
            except DatabaseError as error:
                self._metrics.looks.labels("failed").inc()
                self._log.tell(logging.ERROR, "feed", error=str(error))
                await asyncio.sleep(POLL_RETRY_S)
            else:
                self._metrics.looks.labels("done").inc()
                await asyncio.sleep(max(0.0, self._poll_s - (loop.time() - began)))

    async def _look(self, known: Mapping[str, int]) -> None:
        heads, rows = await self.database.read(_look, known)
        fresh: dict[str, list[EventRow]] = {}
        for row in rows:
            fresh.setdefault(row.job_id, []).append(row)
        for job_id in known:
            channel = self._channels.get(job_id)
            if channel is None or channel.head != known[job_id]:
                # nobody watches it any more, or somebody has begun anew
                continue
            channel.add(fresh.get(job_id, []))
            # one that is no longer there was over before it was deleted
            head, state = heads.get(job_id, (channel.head, "cancelled"))
            channel.over = state in OVER and channel.head >= head
            if channel.over or job_id in fresh:
                channel.wake()


def _look(connection: Connection, known: Mapping[str, int]) -> tuple[dict[str, tuple[int, str]], list[EventRow]]:
    heads: dict[str, tuple[int, str]] = {**events.heads(connection, [*known])}
    behind = {job_id: known[job_id] for job_id, (head, _) in heads.items() if head > known[job_id]}
    return heads, events.after(connection, behind, limit=EVENT_ROWS) if behind else []


def told(row: EventRow) -> Told:
    """Return an event ready to be told."""
    # JSON text may be laid out in lines, and a line would end the data
    data = "\ndata: ".join(row.body.splitlines()) if "\n" in row.body or "\r" in row.body else row.body
    message = f"id: {row.seq}\nevent: {row.kind}\ndata: {data}\n\n"
    return Told(row.seq, row.kind, row.body, message.encode())
