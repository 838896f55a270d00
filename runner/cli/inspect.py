"""`benchmax inspect`: what an artifact holds, and what loading it would do; nothing of it is executed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from runner.artifact import METADATA_NAME, PICKLE_NAME, Artifact, read_artifact
from runner.cli.console import results, write_json
from runner.errors import RunnerError
from runner.inspecting import AuthorsFacts, Overview, inspect_pickle, read_facts
from runner.inspecting.bounds import MAX_METADATA_BYTES, MAX_PICKLE_BYTES
from runner.inspecting.contents import ClassContents, FunctionContents
from runner.text import one_line, printable

EXIT_GOOD: Final = 0
EXIT_BUNDLE: Final = 1
EXIT_HOST: Final = 3

MAX_ROWS: Final = 40
"""Lines of one kind; the JSON has them all."""

MAX_SHARES: Final = 10
"""Contributors of the author's facts: what is large is among the first."""

STYLES: Final = {"danger": "red", "warning": "yellow", "note": ""}


def execute(arguments: argparse.Namespace) -> int:
    """Show what the arguments say."""
    try:
        artifact = read_artifact(arguments.dir, most={METADATA_NAME: MAX_METADATA_BYTES, PICKLE_NAME: MAX_PICKLE_BYTES})
        overview = inspect_pickle(artifact.bundle.pickled)
    except MemoryError:
        raise RunnerError(
            f"there is not enough memory to inspect {arguments.dir}.", hint="Inspect it on a larger machine."
        ) from None
    facts = read_facts(arguments.dir, artifact.digest)
    show(artifact, overview, facts, results(json=arguments.json))
    if arguments.json:
        write_json(json.dumps(as_json(artifact, overview, facts), indent=1).encode() + b"\n")
    if overview.broken or overview.dangers:
        return EXIT_BUNDLE
    return EXIT_HOST if overview.unfinished else EXIT_GOOD


def as_json(artifact: Artifact, overview: Overview, facts: AuthorsFacts | None) -> dict[str, object]:
    """Return all that is shown, and what was too much to show, as JSON values."""
    metadata = artifact.bundle.metadata
    return {
        "format": 1,
        "digest": artifact.digest,
        "pickle_bytes": len(artifact.bundle.pickled),
        "python_version": metadata.python_version,
        "benchmax_version": metadata.benchmax_version,
        "pip_dependencies": list(metadata.pip_dependencies),
        "env_class_source": metadata.env_class_source,
        "pickle": overview.as_json(),
        "authors_facts": None if facts is None else facts.as_json(),
    }


def show(artifact: Artifact, overview: Overview, facts: AuthorsFacts | None, console: Console) -> None:
    """Print an overview."""
    metadata = artifact.bundle.metadata
    rows = {
        "digest": artifact.digest,
        "python": metadata.python_version,
        "benchmax": metadata.benchmax_version,
        "requires": ", ".join(metadata.pip_dependencies) or "nothing beyond benchmax",
        "pickle": f"{overview.size:,} bytes, protocol {overview.protocol}, "
        f"{overview.opcodes:,} instructions read, none carried out",
        "class": overview.environment or "could not be told",
    }
    for name, value in rows.items():
        console.print(f"{name:<9}{one_line(value, 2000)}", soft_wrap=True)
    for name, value in [*overview.arguments.items()][:MAX_ROWS]:
        console.print(f"{'':<9}{name} = {value}", soft_wrap=True)
    _show_findings(overview, console)
    _show_list("imports", (_imported(one.module, one.names) for one in overview.imports), console)
    calls = (f"{one.name} ×{one.count:,}" for one in overview.calls if not one.expected)
    _show_list("calls while it is loaded, beside what every pickle does", calls, console)
    _show_list("brings along", _contents(overview.modules, overview.classes, overview.functions), console)
    for kind, count in overview.left_out.items():
        console.print(f"{count:,} more {kind} are left out")
    if facts is not None:
        _show_facts(facts, console)
    _show_source(metadata.env_class_source, facts, console)
    console.print(_verdict(overview), soft_wrap=True)


def _show_findings(overview: Overview, console: Console) -> None:
    lines = []
    for one in overview.findings:
        place = f" (byte {one.position:,}{f', {one.count:,} times' if one.count > 1 else ''})" * (one.position >= 0)
        lines.append(Text(f"  {one.severity:<8} {one.message}{place}", STYLES[one.severity]))
    _show_list("findings", lines, console)


def _show_list(title: str, lines: Iterable[str | Text], console: Console) -> None:
    found = [*lines]
    if found:
        console.print(f"\n{title}", style="bold")
    for line in found[:MAX_ROWS]:
        console.print(line if isinstance(line, Text) else f"  {line}", soft_wrap=True)
    if len(found) > MAX_ROWS:
        console.print(f"  … {len(found) - MAX_ROWS:,} more, all in the JSON")


def _imported(module: str, names: Sequence[str]) -> str:
    return one_line(f"{module}: {', '.join(names)}" if names else module, 400)


def _contents(
    modules: Sequence[str], classes: Sequence[ClassContents], functions: Sequence[FunctionContents]
) -> Iterable[str]:
    for name in modules:
        yield f"module {name}"
    for one in classes:
        yield f"class {one.name}({', '.join(one.bases)}) of {one.module or '?'}{_doc(one.doc)}"
        for attribute in one.attributes:
            yield f"  {attribute}"
        for function in one.functions:
            yield f"  {_function(function)}"
    for function in functions:
        yield f"{_function(function)} of {function.module or '?'}"


def _function(function: FunctionContents) -> str:
    uses = one_line(f"; uses {', '.join(function.names)}", 300) if function.names else ""
    return f"{function.signature} line {function.line}{_doc(function.doc)}{uses}"


def _doc(doc: str) -> str:
    return f' "{one_line(doc, 80)}"' if doc else ""


def _show_facts(facts: AuthorsFacts, console: Console) -> None:
    console.print("\nenv-facts.json, as its author's tool wrote it, which the pickle need not agree with", style="bold")
    if facts.trouble:
        console.print(f"  not to be relied on: {facts.trouble}", soft_wrap=True)
    if facts.cloudpickle_version:
        console.print(f"  pickled by cloudpickle {facts.cloudpickle_version}")
    for share in facts.by_value[:MAX_SHARES]:
        console.print(f"  by value {share.name}, {share.bytes:,} bytes", soft_wrap=True)
    if len(facts.by_value) > MAX_SHARES:
        console.print(f"  … {len(facts.by_value) - MAX_SHARES:,} more by value, all in the JSON")
    needed = ", ".join(f"{one.module} ({one.source or 'from where is unknown'})" for one in facts.by_reference)
    if needed:
        console.print(f"  by reference {one_line(needed, 2000)}", soft_wrap=True)
    for other in facts.other[:MAX_ROWS]:
        console.print(f"  {other}", soft_wrap=True)


def _show_source(source: str | None, facts: AuthorsFacts | None, console: Console) -> None:
    text = source if source is not None else facts.source if facts is not None else ""
    if not text:
        console.print("\nsource   not recorded")
        return
    # it is a text beside the pickle: what runs is the pickle
    console.print("\nsource   as its author recorded it, which the pickle need not agree with:\n")
    # wrapped, since code could hide beyond the right edge
    console.print(Syntax(printable(text).rstrip(), "python", background_color="default", word_wrap=True))


def _verdict(overview: Overview) -> Text:
    if overview.broken:
        return Text(f"\nbroken: loading it fails: {overview.broken}. Bundle the environment again.", "red")
    if overview.dangers:
        text = "a danger is what no packing of an environment asks for. Do not load it where it could do harm."
        return Text(f"\n{text}", "red")
    if overview.unfinished:
        return Text(f"\nonly part of it was looked at: {overview.unfinished}.", "yellow")
    return Text(
        "\nnothing here makes a bundle safe: it runs its own code once it is loaded. `benchmax run` isolates it."
    )
