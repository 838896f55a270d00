"""A thread that looks after the event loop: says what blocks it, and where every rollout is when the caller asks.

It works as long as some thread of the worker gets to run. For code that holds the interpreter's lock there is `arm`:
the interpreter itself writes down where it was, on a signal of the caller's or when it crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..limits import MAX_SNAPSHOTS
from ..protocol import DUMP_FD, DUMP_SIGNAL, Inspect, Inspected, Snapshot, Stalled
from .calls import CallState
from .outcome import transcript_json
from .stacks import Frames, at_rest, place, shown, task_frames, thread_frames

LOOK_AGAIN_S = 60.0
"""A stall is told again each time it has doubled, and at least this often."""
QUIET = 5
"""After a stall that was told, further ones are only counted for as many times the limit that makes one."""

Send = Callable[[Snapshot | Inspected | Stalled], None]


class Watchdog:
    """Looks after the loop that it is made on.

    Args:
        calls: The calls in flight, by number.
        send: Sends to the caller, from any thread.
        flush: Sends what was printed and could not leave by way of the loop; callable from any thread.
    """

    def __init__(self, calls: Mapping[int, CallState], send: Send, flush: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._calls = calls
        self._send = send
        self._flush = flush
        self._stall_s = 1.0
        self._transcript_bytes = 0
        self._queue: queue.SimpleQueue[Inspect | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="benchmax-watchdog", daemon=True)
        self.resting = True
        """Whether nothing is in flight, so that it has to be woken when something is again."""
        self._asked = 0.0
        self._turned = True
        self._stall: Stalled | None = None
        self._told = False
        self._quiet_until = 0.0
        self._unreported = 0

    def start(self, stall_s: float, transcript_bytes: int) -> None:
        """Begin.

        Args:
            stall_s: A loop that has not turned for this long is stalled.
            transcript_bytes: Kept of one rollout's messages.
        """
        self._stall_s = stall_s
        self._transcript_bytes = transcript_bytes
        self._thread.start()

    def inspect(self, request: Inspect) -> None:
        """Answer a request of the caller; callable from any thread."""
        self._queue.put(request)

    def wake(self) -> None:
        """Say that a call has begun."""
        self._queue.put(None)

    def _run(self) -> None:
        due: float | None = None
        # a loop that is closed means that the worker is ending
        with contextlib.suppress(RuntimeError):
            while True:
                request = None
                with contextlib.suppress(queue.Empty):
                    request = self._queue.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
                if request is not None:
                    self._answer(request)
                now = time.monotonic()
                if self._turned and self._stall is not None:
                    self._on_over(now)
                    due = None
                if due is None or now >= due:
                    due = self._look(now)

    def _look(self, now: float) -> float | None:
        """Find out whether the loop turns; return when to look again."""
        if not self._turned:
            return self._on_stall(now)
        # in this order: a call that begins meanwhile either is seen or wakes this thread
        self.resting = True
        if not self._calls:
            return None
        self.resting = False
        self._turned = False
        self._asked = now
        self._loop.call_soon_threadsafe(self._on_turn)
        return now + self._stall_s

    def _on_turn(self) -> None:
        self._turned = True
        if self._stall is not None:
            self._queue.put(None)

    def _on_stall(self, now: float) -> float:
        running = thread_frames(self._main)
        if at_rest(running):
            # the machine is busy, or this process was stopped: nothing holds the loop up
            return now + self._stall_s
        self._flush()
        call, rollouts = self._blamed(running)
        self._stall = Stalled(
            call=call,
            rollouts=rollouts,
            seconds=now - self._asked,
            where=place(running),
            stack=shown(running),
            over=False,
            unreported=self._unreported,
        )
        if now >= self._quiet_until:
            self._send(self._stall)
            self._told, self._unreported = True, 0
        return now + min(now - self._asked, LOOK_AGAIN_S)

    def _on_over(self, now: float) -> None:
        stall, self._stall = self._stall, None
        assert stall is not None
        if self._told:
            self._send(
                Stalled(
                    call=stall.call,
                    rollouts=stall.rollouts,
                    seconds=now - self._asked,
                    where=stall.where,
                    stack=stall.stack,
                    over=True,
                )
            )
            self._quiet_until = now + QUIET * self._stall_s
        else:
            self._unreported += 1
        self._told = False

    def _blamed(self, running: Frames) -> tuple[int | None, list[str]]:
        """Say for which call and rollouts the code runs that blocks the loop."""
        current = asyncio.current_task(self._loop)
        if current is None:
            return None, []
        states = list(self._calls.values())
        for state in states:
            if state.task is current:
                return state.call, sorted(state.rollouts)
            for rollout_id, task in list(state.running.items()):
                if task is current:
                    return state.call, [rollout_id]
        return None, []

    def _answer(self, request: Inspect) -> None:
        running = thread_frames(self._main)
        current = asyncio.current_task(self._loop)
        self._flush()
        states = [state for state in list(self._calls.values()) if request.call in (None, state.call)]
        frames = running
        if at_rest(running):
            # what is of interest is what the one call waits for; of several, each says so itself
            frames = task_frames(states[0].task, current, running) if len(states) == 1 and states[0].task else []
        try:
            left = MAX_SNAPSHOTS
            for state in states:
                left = self._show(state, current, running, left)
        finally:
            where, stack = place(frames), shown(frames or running)
            self._send(Inspected(inspection=request.inspection, where=where, stack=stack))

    def _show(self, state: CallState, current: asyncio.Task[Any] | None, running: Frames, left: int) -> int:
        """Send where a call and each of its running rollouts are; return how many more may be sent."""
        if state.task is not None:
            stack = shown(task_frames(state.task, current, running))
            self._send(Snapshot(call=state.call, rollout_id=None, stack=stack))
        for rollout_id, task in list(state.running.items())[:left]:
            left -= 1
            pieces, omitted = self._messages(state.transcripts.get(rollout_id))
            self._send(
                Snapshot(
                    call=state.call,
                    rollout_id=rollout_id,
                    stack=shown(task_frames(task, current, running)),
                    messages=pieces,
                    omitted_bytes=omitted,
                )
            )
        return left

    def _messages(self, messages: list[Any] | None) -> tuple[bytes | None, int]:
        if messages is None:
            return None, 0
        # a copy: the rollout goes on appending meanwhile
        return transcript_json(list(messages), self._transcript_bytes)


def arm() -> None:
    """Have the interpreter write where every thread is: on a crash, and when the caller sends its signal."""
    faulthandler.enable(DUMP_FD, all_threads=True)
    faulthandler.register(DUMP_SIGNAL, DUMP_FD, all_threads=True)
