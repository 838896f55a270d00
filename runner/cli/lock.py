"""`benchmax lock`: write down the exact packages an artifact needs."""

from __future__ import annotations

import argparse
import json

from runner.artifact import read_artifact, write_atomically
from runner.cli.console import results, write_json
from runner.cli.interrupt import run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.errors import UsageError
from runner.provision import LOCK_NAME, Cache, make_lock
from runner.text import one_line


def execute(arguments: argparse.Namespace) -> int:
    """Lock what the arguments say."""
    artifact = read_artifact(arguments.dir)
    with Progress() as progress:
        lock, warnings = run_interruptible(
            make_lock(
                artifact.bundle.metadata,
                python=arguments.python,
                cache=Cache(),
                options=provision_options(arguments),
                on_event=progress.on_provision,
            ),
            tell=progress.note,
            leave=progress.abandon,
        )
    path = arguments.dir / LOCK_NAME
    try:
        write_atomically(path, lock.text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}.", hint="Lock a copy of the artifact.") from error
    console = results(json=arguments.json)
    versions = lock.versions
    console.print(f"{path}: {len(versions)} packages", soft_wrap=True)
    for name, found in versions.items():
        console.print(f"  {one_line(name)} {one_line(', '.join(found))}", soft_wrap=True)
    for warning in warnings:
        console.print(f"warning: {one_line(warning, 500)}", soft_wrap=True)
    if arguments.json:
        facts = {
            "format": 1,
            "path": str(path),
            "digest": lock.digest,
            "packages": {name: list(found) for name, found in versions.items()},
            "warnings": list(warnings),
        }
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    return 0
