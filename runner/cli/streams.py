"""The process's own standard streams: text that always fits them, and readers that leave early."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from typing import IO


def prepare() -> None:
    """Make both streams take any text: one that was closed goes nowhere, one with a small alphabet gets escapes."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def finish() -> str:
    """Flush both streams, so that nothing is left for the interpreter to complain about while it exits.

    Returns:
        Why standard output could not be written; empty when it could, and when its reader simply went away.
    """
    trouble = ""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            silence(stream)
            if stream is sys.stdout and not has_gone(stream, error):
                trouble = error.strerror or str(error)
    return trouble


def has_gone(stream: IO[str], error: OSError) -> bool:
    """Whether a stream could not be written because its reader went away, or its terminal was closed."""
    if isinstance(error, BrokenPipeError):
        return True
    try:
        # of a terminal that was closed nothing else is left to be seen
        return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def silence(stream: IO[str]) -> None:
    """Send what a stream still holds, and all that follows, to nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
