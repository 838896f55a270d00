"""The command line, `benchmax`: transport only; every command is one library call.

Exit codes: 0 good · 1 the bundle's fault, or rollouts that did not end well · 2 usage · 3 could not judge ·
130 interrupted. Results go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

from runner.cli import streams
from runner.cli.parser import parse_arguments
from runner.cli.syntax import EXIT_USAGE
from runner.errors import RunnerError, UsageError
from runner.text import one_line, printable

EXIT_BUNDLE = 1
EXIT_HOST = 3
EXIT_INTERRUPTED = 130

_EVERYWHERE = frozenset({"init", "inspect", "submit"})
"""Commands that need nothing of Linux."""

_SERVICE_PACKAGES = frozenset(
    {"alembic", "fastapi", "jinja2", "obstore", "prometheus_client", "psycopg", "sqlalchemy"}
)  # fmt: skip
"""What the extra `service` brings."""

_FAULTS = {"bundle": EXIT_BUNDLE, "usage": EXIT_USAGE, "host": EXIT_HOST}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    streams.prepare()
    try:
        code = _command(argv)
    except SystemExit as leaving:
        # from the parser: help was shown, or what is wrong was said
        code = leaving.code if isinstance(leaving.code, int) else 0
    trouble = streams.finish()
    if trouble and code == 0:
        code = _fail(RunnerError(f"cannot write to standard output: {trouble}."), verbose=False)
    return code


def _command(argv: Sequence[str] | None) -> int:
    verbose = False
    try:
        arguments = parse_arguments(argv)
        verbose = arguments.verbose
        if sys.platform != "linux" and arguments.command not in _EVERYWHERE:
            raise RunnerError(
                f"`benchmax {arguments.command}` needs Linux.",
                hint="`benchmax inspect` works here, and so does benchmax.bundle.dump_bundle.",
            )
        # a command's module is loaded when it is used, so that --help stays instant
        code: int = importlib.import_module(f"runner.cli.{arguments.command}").execute(arguments)
    except RunnerError as error:
        return _fail(error, verbose=verbose)
    except KeyboardInterrupt:
        print("benchmax: interrupted", file=sys.stderr)  # noqa: T201 - the terminal is the user interface
        return EXIT_INTERRUPTED
    except OSError as error:
        refused = RunnerError(
            f"the operating system refused: {error}.",
            hint="Check that there is space on the disk and that the folder for temporary files is writable.",
            detail=traceback.format_exc(),
        )
        return _fail(refused, verbose=verbose)
    except Exception as error:  # noqa: BLE001 - a defect of ours must not look like the bundle's fault (exit code 1)
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _SERVICE_PACKAGES:
            return _fail(_without_service(error), verbose=verbose)
        defect = RunnerError(
            f"this is a defect of benchmax: {type(error).__name__}: {error}.",
            hint="Please report it, with what --verbose shows.",
            detail=traceback.format_exc(),
        )
        return _fail(defect, verbose=verbose)
    return code


def _without_service(error: ModuleNotFoundError) -> RunnerError:
    return UsageError(
        f"the service needs packages that are not installed, such as {error.name}.",
        hint="Install them: pip install 'benchmax[service]'.",
    )


def _fail(error: RunnerError, *, verbose: bool) -> int:
    """Say what went wrong, in one line, and what to do."""
    end = "" if not error.hint or error.message.endswith((".", "!", "?")) else "."
    lines = [f"benchmax: error: {one_line(f'{error.message}{end} {error.hint}', 2000)}"]
    if error.detail:
        lines.append(printable(error.detail) if verbose else "benchmax: more with --verbose")
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - as above
    except OSError:
        streams.silence(sys.stderr)
    return _FAULTS[error.fault]
