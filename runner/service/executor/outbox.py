"""Events of one job on their way to the database: in order, a few at a time, bounded."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from runner.service.settings import LimitSettings

Entry = tuple[str, str]
"""Kind and JSON text of an event."""

Write = Callable[[Sequence[Entry]], Awaitable[object]]

TOGETHER: Final = 200
"""Events in one transaction."""

PAUSE_S: Final = 0.02
"""Between two transactions, so that what happens at once is written at once and nobody waits for it."""

LAST: Final = 200
"""Of the events beyond the limit, so many of the last ones are kept."""

MAX_TEXT_CHARS: Final = 4_000
"""Of one text of output in an event."""

OUTPUT: Final = "log"


def note(text: str) -> dict[str, Any]:
    """Return the body of an event of output that is the runner's own."""
    return {"stream": "log", "level": logging.ERROR, "logger": "benchmax", "text": text}


class Outbox:
    """Takes events and has them written.

    Args:
        write: Writes some, in order; whatever it raises ends `run`.
        limits: How many events and how much output there may be.
    """

    def __init__(self, write: Write, limits: LimitSettings) -> None:
        self._write = write
        self._room = max(0, int(limits.job_events) - LAST)
        self._output_room = int(limits.job_log_bytes)
        self._waiting: deque[Entry] = deque()
        self._last: deque[Entry] = deque(maxlen=LAST)
        self._beyond = 0
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    def put(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take an event.

        Args:
            kind: Its kind.
            body: What there is to say, as JSON has it. Of output what is beyond the limit is left out.
        """
        text = json.dumps(body)
        if kind == OUTPUT:
            if len(text) > self._output_room:
                return
            self._output_room -= len(text)
        if self._room == 0:
            self._beyond += 1
            self._last.append((kind, text))
            return
        self._room -= 1
        self._waiting.append((kind, text))
        self._wake.set()

    async def run(self) -> None:
        """Write what comes, until cancelled; raises what writing raises."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            await self._write_waiting()
            await asyncio.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))

    async def flush(self) -> None:
        """Write all there is, also of what came beyond the limit; nothing is to come after."""
        if self._beyond > len(self._last):
            omitted = self._beyond - len(self._last)
            self._waiting.append((OUTPUT, json.dumps(note(f"{omitted} events are left out here"))))
        self._waiting.extend(self._last)
        self._last.clear()
        await self._write_waiting()

    async def _write_waiting(self) -> None:
        # one at a time, or they would change places
        async with self._writing:
            while self._waiting:
                some = [self._waiting[number] for number in range(min(TOGETHER, len(self._waiting)))]
                await self._write(some)
                for _ in some:
                    self._waiting.popleft()
