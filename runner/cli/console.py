"""Where things are shown: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys

from rich.console import Console

from runner.cli.streams import silence
from runner.text import one_line

PLAIN_WIDTH = 200
"""Columns where there is no terminal: a table cut to eighty in a file or a pipe would lose what it is for."""


class PatientConsole(Console):
    """A console that goes on in silence when whoever read it has seen enough."""

    def on_broken_pipe(self) -> None:
        """Stop showing; what is being done, and its exit code, stay as they are."""
        self.quiet = True
        silence(self.file)


def results(*, json: bool) -> Console:
    """Return the console for result tables: standard output, or standard error when that carries JSON."""
    return console(error=json)


def console(*, error: bool) -> Console:
    """Return a console that takes text as it is: no markup, no highlighting."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return PatientConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def write_json(data: bytes) -> None:
    """Write JSON to standard output."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def say(text: str) -> None:
    """Print one line about progress to standard error."""
    try:
        print(f"benchmax: {one_line(text, 1000)}", file=sys.stderr, flush=True)  # noqa: T201 - the user interface
    except BrokenPipeError:
        silence(sys.stderr)
