"""Ending on SIGINT, SIGTERM or SIGHUP: in order the first time, by force the second, at once the third."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

EXIT_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedRunError(KeyboardInterrupt):
    """Raised when a signal asked to stop, after everything that was under way has ended."""


def run_interruptible(
    work: Coroutine[Any, Any, T],
    *,
    tell: Callable[[str], None],
    force: Callable[[], None] | None = None,
    leave: Callable[[], None] | None = None,
) -> T:
    """Run a coroutine in an event loop of its own.

    Args:
        work: What to do. The first signal cancels it, so that it can end what it has started.
        tell: Called with a line about what a signal has set off.
        force: Called at the second signal, to kill what the cancelled work is waiting for.
        leave: Called before the process ends at once.

    Raises:
        InterruptedRunError: a signal ended it.
    """
    with asyncio.Runner() as runner:
        task, interrupted = runner.run(_watched(work, tell, force, leave))
    if interrupted:
        raise InterruptedRunError
    return task.result()


async def _watched(
    work: Coroutine[Any, Any, T],
    tell: Callable[[str], None],
    force: Callable[[], None] | None,
    leave: Callable[[], None] | None,
) -> tuple[asyncio.Task[T], bool]:
    loop = asyncio.get_running_loop()
    # a task of its own: this one must stay able to say how the other ended
    task = loop.create_task(work)
    asked = 0

    def on_signal(name: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            task.cancel()
            again = "kills it" if force is not None else "leaves at once"
            tell(f"{name}: ending what is under way; once more {again}")
        elif asked == 2 and force is not None:
            tell(f"{name}: killing what is under way")
            force()
        else:
            if leave is not None:
                leave()
            # supervisors end their trees when this process goes, in whatever way
            os._exit(EXIT_INTERRUPTED)

    # whoever started this process with a signal ignored (nohup, a shell's background job) meant it
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        await asyncio.wait([task])
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    if asked and not task.cancelled():
        # it was not left to end by itself, so a failure while ending is no news; looked at, it is not reported
        task.exception()
    return task, asked > 0
