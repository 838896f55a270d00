"""`benchmax bundle`: pack an environment class into an artifact."""

from __future__ import annotations

import argparse
import json

from runner.cli.console import results, write_json
from runner.cli.interrupt import run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.errors import UsageError
from runner.packing import PackRequest, pack
from runner.provision import Cache


def execute(arguments: argparse.Namespace) -> int:
    """Bundle what the arguments say."""
    request = PackRequest(
        target=arguments.target,
        requirements=arguments.pip,
        arguments=constructor_arguments(arguments.arg),
        local_modules=arguments.local_module,
        python=arguments.python,
        here=arguments.here,
    )
    provisioning = provision_options(arguments)
    with Progress() as progress:
        artifact = run_interruptible(
            pack(
                request,
                arguments.out,
                cache=Cache(),
                provisioning=provisioning,
                on_event=progress.on_event,
            ),
            tell=progress.note,
        )
    metadata = artifact.bundle.metadata
    console = results(json=arguments.json)
    size = len(artifact.bundle.pickled)
    console.print(
        f"{arguments.out}: {arguments.target}, {size:,} bytes, Python {metadata.python_version}", soft_wrap=True
    )
    console.print(f"requires: {', '.join(metadata.pip_dependencies) or 'nothing beyond benchmax'}", soft_wrap=True)
    console.print(f"digest: {artifact.digest}", soft_wrap=True)
    if arguments.json:
        facts = {
            "format": 1,
            "path": str(arguments.out),
            "digest": artifact.digest,
            "bytes": size,
            "python_version": metadata.python_version,
            "benchmax_version": metadata.benchmax_version,
            "pip_dependencies": list(metadata.pip_dependencies),
        }
        write_json(json.dumps(facts, indent=1).encode() + b"\n")
    return 0


def constructor_arguments(texts: list[str]) -> dict[str, object]:
    """Read `NAME=JSON` arguments.

    Raises:
        UsageError: one is not of that form, or given twice.
    """
    arguments: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg {text!r} is not of the form NAME=JSON.", hint="It looks like --arg size=120.")
        if name in arguments:
            raise UsageError(f"--arg {name} is given twice.", hint="Leave one of them out.")
        try:
            arguments[name] = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(
                f"--arg {name}: {value!r} is not JSON.", hint=f"Text needs quotes of its own: --arg '{name}=\"text\"'."
            ) from None
    return arguments
