"""Where code is right now: the stacks of threads and of tasks, seen from another thread, as bounded text.

A task that waits has no stack of its own to look at; its coroutine, what that awaits, and so on, make one.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import selectors
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..limits import MAX_TEXT_CHARS, MAX_TRACEBACK_CHARS
from ..text import bounded

MAX_FRAMES = 60
"""Kept of a stack: the innermost ones, which are those that say where it is."""
MAX_WALK = 2_000
"""Frames looked at: twice what Python lets code nest by itself."""

Frames = Sequence[types.FrameType]
"""Outermost first, as in a traceback."""

_FOREIGN = (f"{os.path.dirname(os.__file__)}{os.sep}", f"{Path(__file__).resolve().parents[1]}{os.sep}", "<frozen ")  # noqa: PTH120 - of a string
_LOOP = (f"{os.path.dirname(asyncio.__file__)}{os.sep}", selectors.__file__)  # noqa: PTH120 - of a string
_PACKAGES = ("site-packages", "dist-packages")


def thread_frames(thread: int) -> list[types.FrameType]:
    """Return the stack of a thread; empty when there is none with this number."""
    frames: list[types.FrameType] = []
    frame = sys._current_frames().get(thread)
    while frame is not None and len(frames) < MAX_WALK:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def task_frames(task: asyncio.Task[Any], current: asyncio.Task[Any] | None, running: Frames) -> list[types.FrameType]:
    """Return where a task is.

    Args:
        task: Any task of the loop.
        current: The task that the loop is executing, if it is executing one.
        running: The stack of the loop's thread, which is that task's.
    """
    outermost = getattr(task.get_coro(), "cr_frame", None)
    if task is current and outermost in running:
        return list(running[running.index(outermost) :])
    frames: list[types.FrameType] = []
    seen = {task}
    awaited: object = task.get_coro()
    while len(frames) < MAX_WALK:
        frame: types.FrameType | None
        match awaited:
            case types.CoroutineType():
                frame, awaited = awaited.cr_frame, awaited.cr_await
            case types.GeneratorType():
                frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
            case types.AsyncGeneratorType():
                frame, awaited = awaited.ag_frame, awaited.ag_await
            case _:
                # a future says nothing; one that is a task goes on with that task's own
                waited = getattr(task, "_fut_waiter", None)
                if not isinstance(waited, asyncio.Task) or waited in seen:
                    break
                task, frame, awaited = waited, None, waited.get_coro()
                seen.add(waited)
        if frame is not None:
            frames.append(frame)
    return frames


def shown(frames: Frames) -> str:
    """Format a stack as a traceback does, the innermost frame last."""
    lines = []
    if len(frames) > MAX_FRAMES:
        lines.append(f"  … {len(frames) - MAX_FRAMES} frames left out …\n")
    for frame in frames[-MAX_FRAMES:]:
        code, number = frame.f_code, frame.f_lineno or 0
        lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_qualname}\n')
        # not by way of the module's loader, which may be the bundle's own and run anything
        if source := linecache.getline(code.co_filename, number).strip():
            lines.append(f"    {source}\n")
    return bounded("".join(lines), MAX_TRACEBACK_CHARS)


def place(frames: Frames) -> str:
    """Say in one line where the author's code is: its innermost frame, whatever of a library it has called."""
    if not frames:
        return ""
    own = [frame for frame in frames if not _foreign(frame.f_code.co_filename)]
    frame = (own or frames)[-1]
    return bounded(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}", MAX_TEXT_CHARS)


def at_rest(frames: Frames) -> bool:
    """Whether a loop's thread is in the loop's own code only, most likely waiting for something to happen."""
    if not frames or frames[-1].f_code.co_qualname == "Handle._run":
        # the latter has called machine code, which has no frame
        return False
    for frame in reversed(frames):
        if frame.f_code.co_name == "_run_once":
            return True
        if not frame.f_code.co_filename.startswith(_LOOP):
            return False
    return False


def _foreign(filename: str) -> bool:
    return filename.startswith(_FOREIGN) or any(part in _PACKAGES for part in Path(filename).parts)
