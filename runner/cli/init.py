"""`benchmax init`: begin a project that runs at once."""

from __future__ import annotations

import argparse
import json

from runner.authoring.project import create_project
from runner.cli.console import results, write_json


def execute(arguments: argparse.Namespace) -> int:
    """Make what the arguments say, and tell what to do with it."""
    project = create_project(arguments.name, arguments.kind)
    console = results(json=arguments.json)
    console.print(
        f"{project.folder}: {len(project.files)} files, environment {project.names.environment} in "
        f"{project.names.module}.py",
        soft_wrap=True,
    )
    console.print("next:")
    for step in project.steps:
        console.print(f"  {step}", soft_wrap=True)
    if arguments.json:
        facts = {
            "format": 1,
            "path": str(project.folder),
            "kind": project.kind,
            "target": project.names.target,
            "files": list(project.files),
            "next": list(project.steps),
        }
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    return 0
