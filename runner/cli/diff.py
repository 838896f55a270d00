"""`benchmax diff`: compare two runs."""

from __future__ import annotations

import argparse
from typing import Final

import msgspec
from rich.text import Text

from runner.cli.console import results, write_json
from runner.recording.difference import Comparison, Side, compare
from runner.text import one_line, printable_json

SHOWN: Final = 5
"""Differences of one kind that are shown; all that are listed are in the JSON."""


def execute(arguments: argparse.Namespace) -> int:
    """Compare what the arguments name."""
    found = compare(Side.read(arguments.first), Side.read(arguments.second))
    console = results(json=arguments.json)
    for line in _lines(found):
        console.print(line, soft_wrap=True)
    if arguments.json:
        write_json(printable_json(msgspec.json.format(msgspec.json.encode(found), indent=1)) + b"\n")
    return 0 if found.equal else 1


def _lines(found: Comparison) -> list[Text]:
    lines = []
    for kind, count in found.counts.items():
        if not count:
            continue
        lines.append(Text(f"{kind}: {count} {'difference' if count == 1 else 'differences'}", style="bold"))
        shown = [difference for difference in found.differences if difference.kind == kind][:SHOWN]
        for difference in shown:
            path = f" at {one_line(difference.path)}" if difference.path else ""
            lines.append(Text(f"  {one_line(difference.where)}{path}"))
            lines.append(Text(f"    - {one_line(difference.first, 400)}", style="red"))
            lines.append(Text(f"    + {one_line(difference.second, 400)}", style="green"))
        if count > len(shown):
            lines.append(Text(f"  … {count - len(shown)} more", style="dim"))
    calls = "" if found.calls is None else f" and {found.calls} model calls"
    what = f"{found.rollouts} rollouts{calls} compared"
    lines.append(Text(f"equal: {what}", style="green") if found.equal else Text(f"different: {what}", style="red"))
    return lines
