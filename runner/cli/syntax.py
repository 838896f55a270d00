"""What command lines are made of: a parser that says what is wrong in one line, values and their units, `--json`."""

from __future__ import annotations

import argparse
import math
import re
import sys
from datetime import date
from typing import NoReturn

EXIT_USAGE = 2


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong with a command line in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with the code for usage."""
        text = message.removeprefix("argument ")
        end = "" if text.endswith((".", "?")) else "."
        print(f"benchmax: error: {text}{end} See `{self.prog} --help`.", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_USAGE)


Commands = argparse._SubParsersAction


def count(text: str) -> int:
    """Read a whole number of at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def seconds(text: str) -> float:
    """Read a positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text!r}")
    return number


def size(text: str) -> int:
    """Read a number of bytes, such as `500MB`, `1.5GiB` or `0`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a size such as 500MB or 20GB, got {text!r}")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** ("kmgt".index(match[2]) + 1 if match[2] else 0))


def age(text: str) -> float:
    """Read a length of time, such as `30d`, `12h`, `90m` or `45s`, and return seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"must be an age such as 30d, 12h or 90m, got {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]


def day(text: str) -> date:
    """Read a day such as 2026-01-31."""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a day such as 2026-01-31, got {text!r}")


def common(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what every command takes, and return the group it is in."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="JSON on standard output, the table on standard error")
    group.add_argument("--verbose", action="store_true", help="show tracebacks and installer output of errors")
    return group
