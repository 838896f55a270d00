"""What the command line accepts. Imports nothing heavy: `benchmax --help` builds only this."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from runner.cli.service_commands import add_executor, add_keys, add_serve, add_submit
from runner.cli.syntax import Commands, Parser, age, common, count, day, seconds, size

DESCRIPTION = "Bundle reinforcement-learning environments, and run bundles somebody else made, isolated."

EPILOG = """\
exit codes: 0 good · 1 the bundle's fault, or rollouts that did not end well · 2 usage · 3 could not judge ·
130 interrupted"""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        SystemExit: it is not valid, or asked for help.
    """
    parser, commands = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        command = commands.choices[arguments.command]
        options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", command.format_help())
        close = difflib.get_close_matches(unknown[0].partition("=")[0], options, n=1, cutoff=0.75)
        guess = f"; did you mean {close[0]}?" if close else ""
        command.error(f"unknown argument: {unknown[0]}{guess}")
    return arguments


def build_parser() -> tuple[Parser, Commands[Parser]]:
    """Build the parser, and those of its commands."""
    parser = Parser(
        prog="benchmax",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"benchmax {version('benchmax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _add_bundle(commands)
    _add_cache(commands)
    _add_diff(commands)
    _add_doctor(commands)
    add_executor(commands)
    _add_init(commands)
    _add_inspect(commands)
    add_keys(commands)
    _add_lock(commands)
    _add_prepare(commands)
    _add_report(commands)
    _add_run(commands)
    add_serve(commands)
    add_submit(commands)
    _add_validate(commands)
    return parser, commands


def _common(parser: argparse.ArgumentParser, *, venv: bool) -> None:
    group = common(parser)
    if venv:
        group.add_argument("--python", metavar="X", help="interpreter to use: a version such as 3.12, or a path")
        _packages(parser.add_argument_group("packages"))


def _packages(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--index-url", metavar="URL", help="package index (default: BENCHMAX_INDEX_URL, else PyPI)")
    group.add_argument(
        "--extra-index",
        metavar="NAME[,NAME…]=URL",
        action="append",
        default=[],
        help="index that these packages come from, and no others",
    )
    group.add_argument(
        "--find-links", metavar="PATH_OR_URL", action="append", default=[], help="folder or page that has packages, too"
    )
    group.add_argument(
        "--file-host", metavar="HOST", action="append", default=[], help="host that files come from, beside the index's"
    )
    group.add_argument("--only-binary", action="store_true", help="take wheels alone; build nothing from source")
    group.add_argument("--offline", action="store_true", help="use only what is in the cache and in --find-links")
    group.add_argument("--exclude-newer", metavar="DATE", type=day, help="take no file uploaded after this day (UTC)")
    group.add_argument(
        "--prerelease",
        metavar="MODE",
        default="default",
        help="default, or explicit: no prerelease that the requirements do not list",
    )
    group.add_argument("--installer", metavar="NAME", default="auto", help="uv, pip or auto (default: auto)")


def _sandbox(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sandbox", metavar="LEVEL", default="auto", help="auto, namespaces, landlock or off (default: auto)"
    )


def _model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="NAME", help="mock (default), mock:SCRIPT, local; or any, with --base-url")
    model.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, including /v1")
    model.add_argument("--api-key-env", metavar="VAR", help="variable that holds the key for --base-url")
    model.add_argument(
        "--auth",
        metavar="NAME=env:VAR@URL",
        action="append",
        default=[],
        help="what InjectedAuth(NAME) resolves to, and for which URL",
    )


def _reach(group: argparse._ArgumentGroup, modes: str) -> None:
    group.add_argument("--network", metavar="MODE", help=modes)
    group.add_argument(
        "--allow", metavar="HOST:PORT", action="append", default=[], help="with model-only, a place to reach as well"
    )
    group.add_argument(
        "--secret",
        metavar="NAME=env:VAR",
        action="append",
        default=[],
        help="variable that the bundle gets, with the value of VAR; never shown",
    )


def _locked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--locked", action="store_true", help="demand a pylock.toml in DIR; it is used anyway if there")


def _add_bundle(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "bundle",
        help="pack an environment class into an artifact",
        description="Import TARGET in a fresh venv with its requirements, look for what would go wrong elsewhere, load "
        "it in a process of its own, and write it as an artifact.",
        allow_abbrev=False,
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
    checks = parser.add_argument_group("checks")
    checks.add_argument(
        "--accept", metavar="CODE", action="append", default=[], help="write it in spite of errors of this kind"
    )
    checks.add_argument("--no-verify", action="store_true", help="do not load and construct what was packed")
    checks.add_argument(
        "--secret",
        metavar="NAME=env:VAR",
        action="append",
        default=[],
        help="variable that the constructor needs, with the value of VAR; it is not packed",
    )
    _sandbox(parser.add_argument_group("isolation of installs and of the check"))
    _common(parser, venv=True)


def _add_cache(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "cache",
        help="look at the cache of venvs, check it, make it smaller",
        description="Look at the cache of venvs and installers' downloads, check it, make it smaller.",
        epilog="The cache is the folder BENCHMAX_CACHE_DIR, else benchmax in the user's cache folder.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    for name, text in (
        ("dir", "say which folder it is"),
        ("list", "list what is in it, with sizes and times of last use"),
        ("prune", "remove what is broken, and what these options say; never what is in use"),
        ("verify", "compare all content with what was installed; what was changed is made again at its next use"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
        if name == "prune":
            action.add_argument(
                "--max-size", metavar="SIZE", type=size, help="leave at most this much, such as 20GB; oldest use first"
            )
            action.add_argument(
                "--older-than", metavar="AGE", type=age, help="remove what was not used for this long, such as 30d"
            )
        _common(action, venv=False)


def _add_diff(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "diff",
        help="compare two runs",
        description="Compare two runs: settings, packages, outcomes, rewards, transcripts and model calls.",
        epilog="Exit code 0: they are equal; 1: they differ. Each run is the folder of a record, or a report as JSON.",
        allow_abbrev=False,
    )
    parser.add_argument("first", metavar="A", type=Path, help="a record, or a report that --json-out wrote")
    parser.add_argument("second", metavar="B", type=Path, help="the other one")
    _common(parser, venv=False)


def _add_doctor(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what of this machine can be used, and what is in the way",
        description="Try out the sandbox levels, and look for interpreters, the installer and the cache.",
        allow_abbrev=False,
    )
    _common(parser, venv=False)


def _add_init(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "init",
        help="begin a project that runs at once",
        description="Make a folder with an environment, its data and its tests, and say how to run them.",
        epilog="Kinds: single (one question, one answer), tools (turns with tools), custom (turns of your own).",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", type=Path, help="folder to make; its last part names the environment")
    parser.add_argument("--kind", metavar="KIND", default="single", help="single, tools or custom (default: single)")
    _common(parser, venv=False)


def _add_inspect(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show an artifact without executing it",
        description="Show what an artifact holds and what loading it would do. Nothing of it is executed.",
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    _common(parser, venv=False)


def _add_lock(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "lock",
        help="write down the exact packages an artifact needs",
        description="Resolve an artifact's requirements and write pylock.toml into its folder; install nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    _sandbox(parser.add_argument_group("isolation of installs"))
    _common(parser, venv=True)


def _add_prepare(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "prepare",
        help="make the venv an artifact needs, and nothing else",
        description="Make the venv of an artifact, or find it in the cache.",
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    _locked(parser)
    _sandbox(parser.add_argument_group("isolation of installs"))
    _common(parser, venv=True)


def _add_report(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "report",
        help="show a report again, or make a page of it",
        description="Show the report of a run or the verdict of a validation that was kept, and make a page of it, to "
        "open in a browser.",
        allow_abbrev=False,
    )
    parser.add_argument("report", metavar="REPORT", type=Path, help="a record, or what --json-out wrote")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write it as a page, which is one file")
    _common(parser, venv=False)


def _add_run(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run rollouts of an artifact, isolated",
        description="Run groups of rollouts of an artifact in a venv and a process of its own.",
        epilog="Without --base-url, --model is mock (the default), mock:SCRIPT or local (a small real model).",
        allow_abbrev=False,
    )
    # no defaults here: what is not given is as the plan has it, or as the record says
    parser.add_argument("dir", metavar="DIR", type=Path, nargs="?", help="folder of the artifact")
    parser.add_argument("--data", metavar="PATH", type=Path, help="dataset folder (default: here)")
    parser.add_argument("--split", choices=["train", "eval"], help="dataset split (default: eval)")
    parser.add_argument("--max-examples", metavar="N", type=count, help="examples at most (default: all)")
    parser.add_argument("--group-size", metavar="K", type=count, help="rollouts per example (default: 4)")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="seconds per rollout (default: 600)")
    _locked(parser)
    recording = parser.add_argument_group("records").add_mutually_exclusive_group()
    recording.add_argument(
        "--record",
        metavar="OUT",
        type=Path,
        help="keep the run in a new folder, so that it can be resumed and replayed",
    )
    recording.add_argument("--resume", metavar="OUT", type=Path, help="go on with a recorded run that was interrupted")
    recording.add_argument(
        "--replay", metavar="OUT", type=Path, help="run again with the recorded answers: without network, without key"
    )
    _model(parser)
    isolation = parser.add_argument_group("isolation")
    _sandbox(isolation)
    parser.set_defaults(sandbox=None)
    _reach(isolation, "open (default), model-only (the model's server, URLs of --auth, and --allow), or none")
    isolation.add_argument(
        "--credentials", metavar="MODE", help="gateway (default with model-only or a record), or headers"
    )
    isolation.add_argument("--workers", metavar="N", type=count, help="worker processes (default: 1)")
    isolation.add_argument("--max-in-flight", metavar="N", type=count, help="rollouts at the same time (default: 64)")
    output = parser.add_argument_group("output")
    output.add_argument("--json-out", metavar="FILE", type=Path, help="write the report as JSON to a file too")
    output.add_argument("--report", metavar="FILE", type=Path, help="write the report as a page, to open in a browser")
    output.add_argument("--show-output", action="store_true", help="show what the bundle printed and logged")
    _common(parser, venv=True)


def _add_validate(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "validate",
        help="say whether an artifact does what an environment has to, and what is wrong with it",
        description="Judge an artifact of anybody: look at it, load it, run a few rollouts, and run them again.",
        epilog="Exit code 0: it is valid; 1: it is not; 3: it could not be judged. "
        "Without --base-url, --model is mock (the default), mock:SCRIPT or local (a small real model).",
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the artifact")
    parser.add_argument("--data", metavar="PATH", type=Path, default=Path(), help="dataset folder (default: here)")
    parser.add_argument("--split", choices=["train", "eval"], default="eval", help="dataset split (default: eval)")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=120.0, help="seconds per rollout (default: 120)"
    )
    parser.add_argument(
        "--max-context-tokens", metavar="N", type=count, default=2048, help="tokens of one rollout (default: 2048)"
    )
    _locked(parser)
    _model(parser)
    isolation = parser.add_argument_group("isolation")
    isolation.add_argument(
        "--sandbox", metavar="LEVEL", help="namespaces (default), landlock, off; or auto, the strongest there is"
    )
    _reach(isolation, "model-only (default with namespaces), open (default otherwise), or none")
    output = parser.add_argument_group("output")
    output.add_argument("--json-out", metavar="FILE", type=Path, help="write the verdict as JSON to a file too")
    output.add_argument("--report", metavar="FILE", type=Path, help="write the verdict as a page, to open in a browser")
    _common(parser, venv=True)
