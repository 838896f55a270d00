"""`benchmax report`: a report or a verdict that was kept, shown again, and as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from runner.cli.console import results, write_json
from runner.cli.run import check_writable, write_views
from runner.errors import UsageError
from runner.recording.difference import Side
from runner.report import Report
from runner.report import table as runs
from runner.report.page import page, validation_page
from runner.validation import Verdict
from runner.validation import table as validations


def execute(arguments: argparse.Namespace) -> int:
    """Show the report or the verdict that the arguments name."""
    if arguments.html is not None:
        check_writable(arguments.html, "--html")
    kept = read(arguments.report)
    console = results(json=arguments.json)
    if arguments.html is not None:
        made = page(kept) if isinstance(kept, Report) else validation_page(kept)
        if (unwritten := write_views({arguments.html: lambda: made})) is not None:
            raise unwritten
    if isinstance(kept, Report):
        runs.show(kept, console)
    else:
        validations.show(kept, console)
    if arguments.json:
        write_json(kept.to_json())
    if arguments.html is not None:
        console.print(f"page: {arguments.html}", soft_wrap=True)
    return 0


class _Kept(msgspec.Struct):
    """What tells a verdict from a report."""

    judgement: str = ""


def read(path: Path) -> Report | Verdict:
    """Read a record, a report or a verdict.

    Raises:
        UsageError: it is none of them, or the record has no report yet.
    """
    if path.is_file():
        try:
            data = path.read_bytes()
            if msgspec.json.decode(data, type=_Kept).judgement:
                return Verdict.from_json(data)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path} is neither a report nor a verdict: {error}.",
                hint="Give a record, or what --json-out of `benchmax run` or `benchmax validate` wrote.",
            ) from error
    return Side.read(path).report
