"""`benchmax doctor`: what of this machine the runner can use, what is in the way, and what would help."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, get_args

from rich.table import Table
from rich.text import Text

from runner.cli.console import results, say, write_json
from runner.cli.interrupt import run_interruptible
from runner.errors import RunnerError
from runner.limits import Limits
from runner.provision.cache import Cache
from runner.provision.interpreter import find_interpreter
from runner.provision.uv import find_uv
from runner.sandbox.cgroups import Controller, usable_groups
from runner.sandbox.levels import what_is_not_limited
from runner.sandbox.machine import Machine, this_machine
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability, network_blocker, strongest
from runner.text import one_line

SERIES: Final = ("3.11", "3.12", "3.13")
CONTROLLED: Final[dict[Controller, str]] = {"memory": "memory", "pids": "processes", "cpu": "processor time"}
LOW_DISK_BYTES: Final = 2 * 1000**3
"""A venv with a large framework takes more than this while it is built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Args:
        topic: `sandbox`, `network`, `limits`, `python`, `installer` or `cache`.
        name: What it is.
        available: Whether the runner can use it.
        fact: What it is made of or where it is; where it is not available, what is in the way.
        remedy: What would help; empty where nothing has to.
    """

    topic: str
    name: str
    available: bool
    fact: str
    remedy: str = ""


def execute(arguments: argparse.Namespace) -> int:
    """Look at everything, and show what was found.

    Raises:
        RunnerError: something that nothing can be run without is not available.
    """
    cache = Cache()
    found = [*sandbox_findings(), *run_interruptible(interpreter_findings(cache), tell=say), installer_finding()]
    found.append(cache_finding(cache))
    results(json=arguments.json).print(_table(found))
    if arguments.json:
        facts = {"format": 1, "auto": strongest(), "findings": [asdict(finding) for finding in found]}
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    missing = [topic for topic in ("python", "cache") if not any(f.available for f in found if f.topic == topic)]
    if missing:
        raise RunnerError(
            f"nothing can be run here: no {' and no '.join(missing)} is available.",
            hint="The table says what would help.",
        )
    return 0


def sandbox_findings() -> Iterator[Finding]:
    """Try each level out, strongest first, and say what limits do not hold."""
    machine = this_machine()
    chosen = strongest(machine)
    for level in reversed(get_args(Level)):
        found = availability(level, machine)
        if found.blocker is not None:
            fact, remedy = found.blocker.fact, found.blocker.remedy
        else:
            fact, remedy = found.mechanism, ""
        name = f"{level} (auto takes this)" if level == chosen else level
        yield Finding(topic="sandbox", name=name, available=found.available, fact=fact, remedy=remedy)
    yield network_finding(machine)
    yield from limit_findings(chosen, machine)


def network_finding(machine: Machine) -> Finding:
    """Try out a network of its own."""
    blocker = network_blocker(machine)
    name = "model-only, none"
    if blocker is not None:
        return Finding(topic="network", name=name, available=False, fact=blocker.fact, remedy=blocker.remedy)
    return Finding(topic="network", name=name, available=True, fact="network namespace, at the level namespaces")


def limit_findings(level: Level, machine: Machine) -> Iterator[Finding]:
    """Say which limits hold a whole worker, and what limits do not hold."""
    groups = usable_groups()
    for place in groups.places:
        fact = f"control group, version {place.version}, below {place.folder}"
        yield Finding(topic="limits", name=CONTROLLED[place.controller], available=True, fact=fact)
    # as if all were asked for
    said = what_is_not_limited(level, Limits(memory_bytes=1, cpus=1.0), machine)
    for text in said:
        name, _, fact = text.partition(": ")
        yield Finding(topic="limits", name=name, available=False, fact=fact)


async def interpreter_findings(cache: Cache) -> list[Finding]:
    """Look for an interpreter of each series."""
    found = []
    for series in SERIES:
        try:
            interpreter = await find_interpreter(series, python=None, cache=cache)
        except RunnerError as error:
            found.append(Finding(topic="python", name=series, available=False, fact=error.message, remedy=error.hint))
        else:
            found.append(Finding(topic="python", name=series, available=True, fact=str(interpreter.path)))
    return found


def installer_finding() -> Finding:
    """Look for uv; pip is always there."""
    uv = find_uv()
    if uv is None:
        return Finding(
            topic="installer",
            name="uv",
            available=False,
            fact="no uv of 0.12 or newer was found; pip installs in its place, more slowly",
            remedy="pip install 'uv>=0.12'",
        )
    return Finding(topic="installer", name="uv", available=True, fact=f"{uv[1]} ({uv[0]})")


def cache_finding(cache: Cache) -> Finding:
    """See whether the cache can be written, and how much room it has."""
    folder = _existing(cache.root)
    free = shutil.disk_usage(folder).free
    fact = f"{cache.root}, {free / 1000**3:.1f} GB free"
    if not os.access(folder, os.W_OK | os.X_OK):
        remedy = "Set BENCHMAX_CACHE_DIR to a writable folder"
        return Finding(topic="cache", name="folder", available=False, fact=f"{folder} cannot be written", remedy=remedy)
    remedy = "benchmax cache prune --older-than 30d" if free < LOW_DISK_BYTES else ""
    return Finding(topic="cache", name="folder", available=True, fact=fact, remedy=remedy)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _table(found: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("", "what", "", "found"):
        table.add_column(title, overflow="fold")
    topic = ""
    for finding in found:
        # a limit that does not hold is no defect, but has to be known
        mark = (
            Text("yes", "green") if finding.available else Text("no", "yellow" if finding.topic == "limits" else "red")
        )
        said = f"{finding.fact}. {finding.remedy}" if finding.remedy else finding.fact
        table.add_row("" if finding.topic == topic else finding.topic, finding.name, mark, one_line(said, 600))
        topic = finding.topic
    return table
