"""`benchmax inspect`: what an artifact says about itself; nothing of it is executed."""

from __future__ import annotations

import argparse
import json

from rich.syntax import Syntax

from runner.artifact import read_artifact
from runner.cli.console import results, write_json
from runner.text import one_line, printable


def execute(arguments: argparse.Namespace) -> int:
    """Show what the arguments say."""
    artifact = read_artifact(arguments.dir)
    metadata = artifact.bundle.metadata
    console = results(json=arguments.json)
    rows = {
        "digest": artifact.digest,
        "python": metadata.python_version,
        "benchmax": metadata.benchmax_version,
        "requires": ", ".join(metadata.pip_dependencies) or "nothing beyond benchmax",
        "pickle": f"{len(artifact.bundle.pickled):,} bytes (not opened)",
    }
    for name, value in rows.items():
        console.print(f"{name:<9}{one_line(value, 2000)}", soft_wrap=True)
    if metadata.env_class_source is not None:
        # it is a text beside the pickle: what runs is the pickle
        console.print("source   as its author recorded it, which the pickle need not agree with:\n")
        # wrapped, since code could hide beyond the right edge
        console.print(
            Syntax(printable(metadata.env_class_source).rstrip(), "python", background_color="default", word_wrap=True)
        )
    else:
        console.print("source   not recorded")
    if arguments.json:
        facts = {
            "format": 1,
            "digest": artifact.digest,
            "pickle_bytes": len(artifact.bundle.pickled),
            "python_version": metadata.python_version,
            "benchmax_version": metadata.benchmax_version,
            "pip_dependencies": list(metadata.pip_dependencies),
            "env_class_source": metadata.env_class_source,
        }
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    return 0
