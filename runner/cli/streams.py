"""The process's own standard streams: text that always fits them, and readers that leave early."""

from __future__ import annotations

import contextlib
import io
import os
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
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                trouble = error.strerror or str(error)
    return trouble


def silence(stream: IO[str]) -> None:
    """Send what a stream still holds, and all that follows, to nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
