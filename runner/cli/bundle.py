"""`benchmax bundle`: pack an environment class into an artifact, or say all that is wrong with it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from benchmax.bundle.findings.finding import Finding
from runner.artifact import Artifact
from runner.cli.console import results, write_json
from runner.cli.credentials import secret_variables
from runner.cli.interrupt import run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.errors import UsageError
from runner.packing import Packed, PackRequest, try_to_pack
from runner.provision import Cache
from runner.text import one_line

EXIT_FOUND = 1
LISTED = 8
"""Entries shown of what a bundle carries and needs; the JSON has more."""


def execute(arguments: argparse.Namespace) -> int:
    """Bundle what the arguments say."""
    request = PackRequest(
        target=arguments.target,
        requirements=arguments.pip,
        arguments=constructor_arguments(arguments.arg),
        local_modules=arguments.local_module,
        python=arguments.python,
        here=arguments.here,
        accept=arguments.accept,
        verify=not arguments.no_verify,
        secrets=secret_variables(arguments.secret),
    )
    provisioning = provision_options(arguments)
    with Progress() as progress:
        packed = run_interruptible(
            try_to_pack(
                request,
                arguments.out,
                cache=Cache(),
                provisioning=provisioning,
                on_event=progress.on_event,
            ),
            tell=progress.note,
            leave=progress.abandon,
        )
    console = results(json=arguments.json)
    _show(console, packed, arguments.target, arguments.out)
    if arguments.json:
        write_json(json.dumps(_facts(packed, arguments.out), indent=1).encode() + b"\n")
    return EXIT_FOUND if packed.artifact is None else 0


def _show(console: Console, packed: Packed, target: str, out: Path) -> None:
    def tell(text: str, indent: str = "") -> None:
        console.print(indent + one_line(text, 1000), soft_wrap=True)

    if packed.artifact is not None:
        metadata = packed.artifact.bundle.metadata
        tell(f"{out}: {target}, {packed.pickle_bytes:,} bytes, Python {metadata.python_version}")
        tell(f"requires: {', '.join(metadata.pip_dependencies) or 'nothing beyond benchmax'}")
    tell(f"by value: {_listed([f'{name} {size:,} bytes' for name, size in packed.by_value])}")
    needed = [name if source in ("", name) else f"{name} ({source})" for name, source in _packages(packed)]
    tell(f"by reference: {_listed([*needed, 'the standard library'])}")
    if packed.artifact is not None:
        tell(f"digest: {packed.artifact.digest}")
    for finding in packed.findings:
        accepted = finding.severity == "error" and not packed.refuses(finding)
        kind = "accepted" if accepted else finding.severity
        where = _where(finding)
        console.print()
        tell(f"{kind}: {finding.code}: {finding.what}{f', {where}' if where else ''}")
        tell(f"{finding.message}.", "  ")
        tell(finding.fix, "  ")
    if packed.artifact is None:
        count = sum(map(packed.refuses, packed.findings))
        console.print()
        tell(f"{target} is not bundled: {count} error{'' if count == 1 else 's'}. Nothing was written.")


def _packages(packed: Packed) -> list[tuple[str, str]]:
    return [(name, source) for name, source in packed.by_reference if source != "python"]


def _listed(entries: list[str]) -> str:
    more = len(entries) - LISTED
    return ", ".join(entries[:LISTED]) + (f", and {more} more" if more > 0 else "") or "nothing"


def _where(finding: Finding) -> str:
    """Return a finding's place, as seen from the working directory."""
    path = Path(finding.file)
    here = Path.cwd()
    shown = str(path.relative_to(here)) if path.is_relative_to(here) else finding.file
    return f"{shown}:{finding.line}" if shown and finding.line else finding.file and shown


def _facts(packed: Packed, out: Path) -> dict[str, object]:
    return {
        "format": 1,
        "path": str(out),
        "written": packed.artifact is not None,
        **(_artifact_facts(packed.artifact) if packed.artifact is not None else {}),
        "by_value": [{"name": name, "bytes": size} for name, size in packed.by_value],
        "by_reference": [{"module": name, "source": source} for name, source in packed.by_reference],
        "findings": [
            {**finding.as_json(), "accepted": finding.severity == "error" and not packed.refuses(finding)}
            for finding in packed.findings
        ],
    }


def _artifact_facts(artifact: Artifact) -> dict[str, object]:
    metadata = artifact.bundle.metadata
    return {
        "digest": artifact.digest,
        "bytes": len(artifact.bundle.pickled),
        "python_version": metadata.python_version,
        "benchmax_version": metadata.benchmax_version,
        "pip_dependencies": list(metadata.pip_dependencies),
    }


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
