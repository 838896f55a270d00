"""Where things are shown: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from typing import IO, TextIO, cast

from rich.console import Console

from runner.cli.streams import has_gone, silence
from runner.text import one_line

PLAIN_WIDTH = 200
"""Columns where there is no terminal: a table cut to eighty in a file or a pipe would lose what it is for."""


class PatientConsole(Console):
    """A console that goes on in silence when whoever read it has seen enough."""

    def on_broken_pipe(self) -> None:
        """Stop showing; what is being done, and its exit code, stay as they are."""
        self.quiet = True
        silence(self.file)


class Outlet:
    """A stream for a console, to which everybody who no longer reads is a reader that has gone.

    Args:
        stream: Where it goes.
        dispensable: Whether nothing is lost by what cannot be written at all, such as to a full disk.
    """

    def __init__(self, stream: TextIO, *, dispensable: bool) -> None:
        self._stream = stream
        self._dispensable = dispensable
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        """Write.

        Raises:
            BrokenPipeError: nobody reads it.
            OSError: as the operating system says.
        """
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._meant(error) from error

    def flush(self) -> None:
        """Write what is held back; raises what `write` does."""
        try:
            self._stream.flush()
        except OSError as error:
            raise self._meant(error) from error

    def _meant(self, error: OSError) -> OSError:
        gone = self._dispensable or has_gone(self._stream, error)
        return BrokenPipeError(error.errno, error.strerror) if gone else error

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._stream.fileno()


def results(*, json: bool) -> Console:
    """Return the console for result tables: standard output, or standard error when that carries JSON."""
    return console(error=json)


def console(*, error: bool) -> Console:
    """Return a console that takes text as it is: no markup, no highlighting."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return PatientConsole(
        file=cast("IO[str]", Outlet(stream, dispensable=error)),
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        # by itself it would leave out the colours alone, and not that something is bold or dim
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def write_json(data: bytes) -> None:
    """Write JSON to standard output."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        if not has_gone(sys.stdout, error):
            raise
        silence(sys.stdout)


def say(text: str) -> None:
    """Print one line about progress to standard error."""
    try:
        print(f"benchmax: {one_line(text, 1000)}", file=sys.stderr, flush=True)  # noqa: T201 - the user interface
    except OSError:
        silence(sys.stderr)
