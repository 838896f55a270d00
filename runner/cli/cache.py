"""`benchmax cache`: look at the cache of venvs and downloads, check it, make it smaller."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from runner.cli.console import results, write_json
from runner.errors import CacheError
from runner.provision.cache import Cache
from runner.provision.cache_entries import Entry, entries
from runner.provision.cache_pruning import prune
from runner.provision.cache_verification import verify
from runner.text import one_line

MAX_CHANGES = 5
"""Differences shown of one entry; a folder that was emptied has thousands. JSON has all."""


def execute(arguments: argparse.Namespace) -> int:
    """Do with the cache what the arguments say."""
    cache = Cache()
    actions = {"dir": _dir, "list": _list, "prune": _prune, "verify": _verify}
    actions[arguments.action](cache, arguments)
    return 0


def _dir(cache: Cache, arguments: argparse.Namespace) -> None:
    results(json=arguments.json).print(str(cache.root), soft_wrap=True)
    if arguments.json:
        _write({"format": 1, "dir": str(cache.root)})


def _list(cache: Cache, arguments: argparse.Namespace) -> None:
    found = entries(cache)
    console = results(json=arguments.json)
    if found:
        console.print(_table(found))
    total = sum(entry.size_bytes for entry in found)
    console.print(f"{len(found)} entries, {_size(total)} in {cache.root}", soft_wrap=True)
    if arguments.json:
        _write({"format": 1, "dir": str(cache.root), "size_bytes": total, "entries": [_facts(e) for e in found]})


def _prune(cache: Cache, arguments: argparse.Namespace) -> None:
    done = prune(cache, max_bytes=arguments.max_size, older_than_s=arguments.older_than)
    console = results(json=arguments.json)
    for entry in done.removed:
        console.print(f"removed {entry.kind} {entry.name} ({_size(entry.size_bytes)})", soft_wrap=True)
    for entry in done.kept:
        console.print(f"kept {entry.kind} {entry.name}: it is in use", soft_wrap=True)
    console.print(f"freed {_size(done.freed_bytes)}, {_size(done.left_bytes)} left in {cache.root}", soft_wrap=True)
    if arguments.json:
        _write(
            {
                "format": 1,
                "removed": [_facts(entry) for entry in done.removed],
                "kept": [_facts(entry) for entry in done.kept],
                "freed_bytes": done.freed_bytes,
                "left_bytes": done.left_bytes,
            }
        )


def _verify(cache: Cache, arguments: argparse.Namespace) -> None:
    found = verify(cache)
    console = results(json=arguments.json)
    changed = [entry for entry in found if entry.verdict == "changed"]
    for entry in found:
        if entry.verdict != "whole":
            console.print(f"{one_line(entry.name)}: {entry.verdict}", soft_wrap=True)
        for line in entry.changes[:MAX_CHANGES]:
            console.print(f"  {one_line(line, 500)}", soft_wrap=True)
        if len(entry.changes) > MAX_CHANGES:
            console.print(f"  and {len(entry.changes) - MAX_CHANGES} more", soft_wrap=True)
    console.print(f"{len(found)} entries checked, {len(changed)} changed", soft_wrap=True)
    if arguments.json:
        _write({"format": 1, "entries": [asdict(entry) for entry in found]})
    if changed:
        what = "1 entry of the cache is" if len(changed) == 1 else f"{len(changed)} entries of the cache are"
        raise CacheError(
            f"{what} not as installed.",
            hint="What was changed is out of use and is made again when needed; find out who changed it.",
        )


def _table(found: Sequence[Entry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("entry", "kind", "Python", "packages", "size", "last used", "state", "made for"):
        table.add_column(title, justify="right" if title in {"packages", "size"} else "left", no_wrap=True)
    now = time.time()
    for entry in found:
        state = "in use" if entry.in_use else "" if entry.whole else "incomplete"
        table.add_row(
            entry.name,
            entry.kind,
            entry.python_version,
            str(entry.packages) if entry.kind == "venv" else "",
            _size(entry.size_bytes),
            _ago(now - entry.last_used),
            Text(state, "red" if state == "incomplete" else ""),
            one_line(", ".join(entry.requirements), 60),
        )
    return table


def _facts(entry: Entry) -> dict[str, object]:
    used = dt.datetime.fromtimestamp(entry.last_used, tz=dt.UTC).isoformat(timespec="seconds")
    return {**asdict(entry), "path": str(entry.path), "last_used": used}


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    power = min(4, (len(str(count)) - 1) // 3)
    size = count / 1000**power
    return f"{size:.1f} {'_kMGT'[power]}B" if size < 10 else f"{size:.0f} {'_kMGT'[power]}B"


def _ago(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _write(facts: dict[str, object]) -> None:
    write_json(json.dumps(facts, indent=1).encode() + b"\n")
