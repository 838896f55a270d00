"""Where things are shown: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys

from rich.console import Console

from runner.report.text import one_line


def results(*, json: bool) -> Console:
    """Return the console for result tables: standard output, or standard error when that carries JSON."""
    stream = sys.stderr if json else sys.stdout
    # a table cut to eighty columns in a file or a pipe would lose what it is for
    width = None if stream.isatty() else 200
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def write_json(data: bytes) -> None:
    """Write JSON to standard output."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print one line about progress to standard error."""
    print(one_line(text, 1000), file=sys.stderr, flush=True)  # noqa: T201 - the terminal is the user interface
