"""The command line, `benchmax`: transport only; every command is one library call.

Exit codes: 0 good · 1 the bundle's fault, or rollouts that did not end well · 2 usage · 3 could not judge ·
130 interrupted. Results go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from runner.cli.parser import build_parser
from runner.errors import RunnerError

EXIT_BUNDLE = 1
EXIT_USAGE = 2
EXIT_HOST = 3
EXIT_INTERRUPTED = 130

_FAULTS = {"bundle": EXIT_BUNDLE, "usage": EXIT_USAGE, "host": EXIT_HOST}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    if sys.platform != "linux" and arguments.command in ("run", "prepare", "bundle"):
        return _fail(RunnerError(f"`benchmax {arguments.command}` needs Linux; inspect works here."), verbose=False)
    # a command's module is loaded when it is used, so that --help stays instant
    command = importlib.import_module(f"runner.cli.{arguments.command}")
    try:
        code: int = command.execute(arguments)
    except RunnerError as error:
        return _fail(error, verbose=getattr(arguments, "verbose", False))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201 - the terminal is the user interface
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; a second complaint at interpreter exit would be noise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _fail(error: RunnerError, *, verbose: bool) -> int:
    """Say what went wrong, in one line, and what to do."""
    from runner.report.text import one_line, printable

    print(f"benchmax: error: {one_line(str(error), 2000)}", file=sys.stderr)  # noqa: T201 - as above
    if error.detail:
        if verbose:
            print(printable(error.detail), file=sys.stderr)  # noqa: T201 - as above
        else:
            print("benchmax: more with --verbose", file=sys.stderr)  # noqa: T201 - as above
    return _FAULTS[error.fault]
