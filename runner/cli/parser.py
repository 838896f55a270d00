"""What the command line accepts. Imports nothing heavy: `benchmax --help` builds only this."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

DESCRIPTION = "Bundle reinforcement-learning environments, and run bundles somebody else made, isolated."

EPILOG = """\
exit codes: 0 good · 1 the bundle's fault, or rollouts that did not end well · 2 usage · 3 could not judge ·
130 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="benchmax", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"benchmax {version('benchmax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_bundle(commands)
    _add_inspect(commands)
    _add_prepare(commands)
    _add_run(commands)
    return parser


Commands = argparse._SubParsersAction


def _common(parser: argparse.ArgumentParser, *, venv: bool) -> None:
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="JSON on standard output, the table on standard error")
    group.add_argument("--verbose", action="store_true", help="show tracebacks and installer output of errors")
    if venv:
        group.add_argument("--python", metavar="X", help="interpreter to use: a version such as 3.12, or a path")
        group.add_argument("--index-url", metavar="URL", help="package index (default: BENCHMAX_INDEX_URL, else PyPI)")


def _add_bundle(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bundle",
        help="pack an environment class into an artifact",
        description="Import TARGET in a fresh venv with its requirements, and write it as an artifact.",
    )
    parser.add_argument("target", metavar="TARGET", help="file.py:Class or pkg.mod:Class")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder to write the artifact to")
    parser.add_argument("--pip", metavar="REQ", action="append", default=[], help="requirement, such as sympy>=1.13")
    parser.add_argument(
        "--arg", metavar="NAME=JSON", action="append", default=[], help="constructor argument, such as size=120"
    )
    parser.add_argument(
        "--local-module", metavar="MOD", action="append", default=[], help="further module to pack by value"
    )
    parser.add_argument("--here", action="store_true", help="import and pack in the current venv, not a fresh one")
    _common(parser, venv=True)


def _add_inspect(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show an artifact without executing it",
        description="Show an artifact's metadata and class source. Nothing of it is unpickled.",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    _common(parser, venv=False)


def _add_prepare(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "prepare",
        help="make the venv an artifact needs, and nothing else",
        description="Make the venv of an artifact, or find it in the cache.",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    _common(parser, venv=True)


def _add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run rollouts of an artifact, isolated",
        description="Run groups of rollouts of an artifact in a venv and a process of its own.",
        epilog="Without --base-url, --model is mock (the default), mock:SCRIPT or local (a small real model).",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    parser.add_argument("--data", metavar="PATH", type=Path, default=Path(), help="dataset folder (default: here)")
    parser.add_argument("--split", choices=["train", "eval"], default="eval", help="dataset split (default: eval)")
    parser.add_argument("--max-examples", metavar="N", type=int, help="examples at most (default: all)")
    parser.add_argument("--group-size", metavar="K", type=int, default=4, help="rollouts per example (default: 4)")
    parser.add_argument("--timeout", metavar="S", type=float, help="seconds per rollout (default: 600)")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model", metavar="NAME", default="mock", help="mock, mock:SCRIPT, local; or any, with --base-url"
    )
    model.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, including /v1")
    model.add_argument("--api-key-env", metavar="VAR", help="variable that holds the key for --base-url")
    model.add_argument(
        "--auth",
        metavar="NAME=env:VAR@URL",
        action="append",
        default=[],
        help="what InjectedAuth(NAME) resolves to, and for which URL",
    )
    isolation = parser.add_argument_group("isolation")
    isolation.add_argument("--sandbox", metavar="LEVEL", default="auto", help="auto or off (default: auto)")
    isolation.add_argument("--network", metavar="MODE", default="open", help="open (default)")
    isolation.add_argument("--credentials", metavar="MODE", default="headers", help="headers (default)")
    isolation.add_argument("--workers", metavar="N", type=int, default=1, help="worker processes (default: 1)")
    isolation.add_argument(
        "--max-in-flight", metavar="N", type=int, default=64, help="rollouts at the same time (default: 64)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json-out", metavar="FILE", type=Path, help="write the report as JSON to a file too")
    output.add_argument("--show-output", action="store_true", help="show what the bundle printed and logged")
    _common(parser, venv=True)
