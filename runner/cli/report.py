"""`benchmax report`: a report that was kept, shown again, and as a page."""

from __future__ import annotations

import argparse

from runner.cli.console import results, write_json
from runner.cli.run import check_writable, write_report
from runner.errors import RunnerError
from runner.recording.difference import Side
from runner.report.page import page
from runner.report.table import show


def execute(arguments: argparse.Namespace) -> int:
    """Show the report that the arguments name."""
    if arguments.html is not None:
        check_writable(arguments.html, "--html")
    report = Side.read(arguments.report).report
    console = results(json=arguments.json)
    if arguments.html is not None:
        try:
            write_report(arguments.html, page(report))
        except OSError as error:
            raise RunnerError(f"cannot write {arguments.html}: {error.strerror}.") from error
    show(report, console)
    if arguments.json:
        write_json(report.to_json())
    if arguments.html is not None:
        console.print(f"page: {arguments.html}", soft_wrap=True)
    return 0
