"""`benchmax prepare`: make the venv an artifact needs, and nothing else."""

from __future__ import annotations

import argparse
import json

from runner.artifact import read_artifact
from runner.cli.console import results, write_json
from runner.cli.interrupt import run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.provision import Cache, lock_beside, provision
from runner.text import one_line


def execute(arguments: argparse.Namespace) -> int:
    """Prepare what the arguments say."""
    artifact = read_artifact(arguments.dir)
    options = lock_beside(provision_options(arguments), arguments.dir)
    with Progress() as progress:
        venv = run_interruptible(
            provision(
                artifact.bundle.metadata,
                python=arguments.python,
                cache=Cache(),
                options=options,
                on_event=progress.on_provision,
            ),
            tell=progress.note,
            leave=progress.abandon,
        )
    console = results(json=arguments.json)
    console.print(f"{venv.path}: Python {venv.python_version}, {len(venv.packages)} packages", soft_wrap=True)
    for name, version in venv.packages.items():
        console.print(f"  {one_line(name)} {one_line(version)}", soft_wrap=True)
    for warning in venv.warnings:
        console.print(f"warning: {one_line(warning, 500)}", soft_wrap=True)
    if arguments.json:
        facts = {
            "format": 1,
            "key": venv.key,
            "path": str(venv.path),
            "python": str(venv.base_python),
            "python_version": venv.python_version,
            "packages": dict(venv.packages),
            "installer": venv.installer,
            "warnings": list(venv.warnings),
        }
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    return 0
