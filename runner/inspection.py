"""Asking a worker where it is before it is stopped or killed, and reading what its interpreter wrote as it died.

Comes in: answers of the worker, and a memory file that it can write. Goes out: stacks as text, which are what the
worker says and no more. Nothing here waits longer than a moment: a worker that cannot answer is about to be killed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.errors import FrameError
from runner.limits import DUMP_S, INSPECT_S, MAX_DUMP_BYTES
from runner.protocol import Inspect, Inspected
from runner.text import bounded, printable

DUMP_POLL_S: Final = 0.01
"""Between two looks at what the interpreter has written: it needs a millisecond or two."""

OWN_THREADS: Final = ("headers.py", "watchdog.py")
"""Files of the worker whose threads are not the bundle's."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a worker was.

    Args:
        text: In one sentence.
        stack: As a stack.
    """

    text: str
    stack: str


class Inspector:
    """Finds out where one worker is.

    Args:
        send: Sends a request to the worker.
        signal: Makes its interpreter write where it is.
        dump: The memory file it writes to; belongs to the inspector from now on.
        code: The folder of the worker's own code.
    """

    def __init__(self, send: Callable[[Inspect], None], signal: Callable[[], None], dump: int, code: Path) -> None:
        self._send = send
        self._signal = signal
        self._dump = dump
        self._own = tuple(f'"{code.resolve() / name}"' for name in OWN_THREADS)
        self._silent = False
        self._waiting: dict[int, asyncio.Future[Sighting]] = {}
        self._last = 0

    @property
    def asking(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    async def ask(self, call: int | None) -> Sighting | None:
        """Ask where the rollouts of a call (`None`: of all calls) are, which it says one by one.

        Returns:
            Where its main thread is; `None` when it has not answered in time.
        """
        self._last += 1
        answered = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        self._send(Inspect(inspection=self._last, call=call))
        await asyncio.wait([answered], timeout=INSPECT_S)
        self._silent = not answered.done()
        return None if self._silent else answered.result()

    def answered(self, message: Inspected) -> None:
        """Take in the end of an answer.

        Raises:
            FrameError: nothing was asked.
        """
        waiting = self._waiting.pop(message.inspection, None)
        if waiting is None:
            raise FrameError("an inspected message out of turn")
        waiting.set_result(_sighting(message.where, message.stack))

    async def ask_all(self) -> Sighting | None:
        """Ask where everything is; of the interpreter itself, if no thread of the worker can answer."""
        if not self._silent and (seen := await self.ask(None)) is not None:
            return seen
        self._signal()
        for _ in range(round(DUMP_S / DUMP_POLL_S)):
            await asyncio.sleep(DUMP_POLL_S)
            if (seen := self.read()) is not None:
                return seen
        return None

    def read(self) -> Sighting | None:
        """Return what the interpreter has written by now, if it has written anything."""
        text = os.pread(self._dump, MAX_DUMP_BYTES, 0).partition(b"\0")[0].decode("utf-8", "replace")
        blocks = [block for block in text.split("\n\n") if not any(name in block for name in self._own)]
        # the thread that crashed, or that holds the lock, comes first
        blocks.sort(key=lambda block: "Current thread" not in block and "Fatal Python error" not in block)
        stack = "\n\n".join(block.strip("\n") for block in blocks) + "\n"
        frames = _FRAME.findall(stack)
        return _sighting(_place(frames), stack) if frames else None

    def close(self) -> None:
        """Let go of the memory file; nothing can be read after this. Harmless twice."""
        if self._dump >= 0:
            os.close(self._dump)
            self._dump = -1


def _sighting(where: str, stack: str) -> Sighting:
    # names of files and functions are whatever the bundle calls them
    return Sighting(printable(f"It was at {where}." if where else "Its event loop was waiting."), printable(stack))


def _place(frames: list[tuple[str, str, str]]) -> str:
    """The innermost frame that is not the standard library's; in a dump it comes first."""
    own = [frame for frame in frames if "/lib/python3" not in frame[0] and not frame[0].startswith("<frozen")]
    file, line, function = (own or frames)[0]
    return bounded(f"{file}:{line} in {function}", 500)
