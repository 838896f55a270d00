"""`benchmax run`: rollouts of an artifact, isolated."""

from __future__ import annotations

import argparse
import errno
import os
import re
import tempfile
from pathlib import Path

from rich.console import Console

from benchmax.auth import StaticBearerAuth
from runner.artifact import read_artifact, write_atomically
from runner.broker import Binding
from runner.cli.console import console, results, say, write_json
from runner.cli.interrupt import EXIT_INTERRUPTED, InterruptedRunError, run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.errors import RunnerError, UsageError
from runner.limits import Limits
from runner.models import parse_model
from runner.provision import Cache
from runner.report import Report
from runner.report.table import show
from runner.run import Run, RunPlan
from runner.text import one_line, printable
from runner.variables import SecretVariables, check_name


def execute(arguments: argparse.Namespace) -> int:
    """Run what the arguments say."""
    plan = plan_of(arguments)
    artifact = read_artifact(arguments.dir)
    if arguments.json_out is not None:
        check_writable(arguments.json_out)
    run = Run(artifact, plan, cache=Cache(), on_event=lambda event: progress.on_event(event))
    interrupted = False
    report: Report | None
    with Progress(lambda: run.expected) as progress:
        try:
            report = run_interruptible(run.run(), tell=progress.note, force=run.kill)
        except InterruptedRunError:
            interrupted = True
            report = run.report()
    if report is not None:
        _show(report, arguments)
    if interrupted:
        say("interrupted; what is shown is partial" if report is not None else "interrupted before a rollout ran")
        return EXIT_INTERRUPTED
    assert report is not None
    return 0 if report.good else 1


def _show(report: Report, arguments: argparse.Namespace) -> None:
    data = report.to_json()
    table = results(json=arguments.json)
    unwritten: OSError | None = None
    if arguments.json_out is not None:
        # before anything is shown, since whoever reads that may be gone
        try:
            write_report(arguments.json_out, data)
        except OSError as error:
            unwritten = error
    if arguments.show_output:
        _show_output(report)
    show(report, table)
    if arguments.json:
        write_json(data)
    if unwritten is not None:
        raise RunnerError(
            f"cannot write {arguments.json_out}: {unwritten.strerror}.", hint="The rollouts ran; see the table above."
        ) from unwritten
    if arguments.json_out is not None:
        table.print(f"report: {arguments.json_out}", soft_wrap=True)


def _show_output(report: Report) -> None:
    """Print what the bundle printed and logged, on standard error."""
    shown = console(error=True)
    for name, text in report.worker_output.items():
        if text:
            shown.print(f"--- {name} outside of rollouts", soft_wrap=True)
            _show_text("", text, shown)
    for outcome in report.outcomes:
        if outcome.logs or outcome.stack:
            shown.print(f"--- {one_line(outcome.rollout_id)}", soft_wrap=True)
            for line in outcome.logs:
                _show_text(f"{one_line(line.logger or line.stream)}: ", line.text, shown)
            if outcome.stack:
                shown.print("where it was when it was ended:", soft_wrap=True)
                _show_text("", outcome.stack, shown)


def _show_text(source: str, text: str, shown: Console) -> None:
    # indented, so that no printed line can pass for one of ours
    for line in printable(text).removesuffix("\n").split("\n"):
        shown.print(f"  {source}{line}", soft_wrap=True)


def plan_of(arguments: argparse.Namespace) -> RunPlan:
    """Turn parsed arguments into a plan.

    Raises:
        UsageError: one of them cannot be meant.
    """
    limits = Limits() if arguments.timeout is None else Limits(rollout_s=arguments.timeout)
    if arguments.api_key_env is not None and arguments.base_url is None:
        raise UsageError("--api-key-env needs --base-url.", hint="The mock and local models want no key.")
    key = None if arguments.api_key_env is None else secret(arguments.api_key_env, "--api-key-env")
    return RunPlan(
        model=parse_model(arguments.model, base_url=arguments.base_url),
        model_auth=key,
        auth=bindings(arguments.auth),
        data=arguments.data,
        split=arguments.split,
        max_examples=arguments.max_examples,
        group_size=arguments.group_size,
        max_in_flight=arguments.max_in_flight,
        workers=arguments.workers,
        sandbox=arguments.sandbox,
        network=arguments.network,
        allow=tuple(arguments.allow),
        secrets=secret_variables(arguments.secret),
        credentials=arguments.credentials,
        limits=limits,
        python=arguments.python,
        provisioning=provision_options(arguments),
    )


def bindings(texts: list[str]) -> dict[str, Binding]:
    """Read `NAME=env:VAR@URL` arguments.

    Raises:
        UsageError: one is not of that form, its variable is not set, or a name is given twice.
    """
    found: dict[str, Binding] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        variable, at, url = rest.partition("@")
        if not name.strip() or not equals or not variable.startswith("env:") or not at:
            # what stands for the variable may be the secret itself
            raise UsageError(
                f"--auth {f'{name}=' if equals else ''}… is not of the form NAME=env:VAR@URL.",
                hint="It looks like --auth judge=env:JUDGE_KEY@https://judge.example/v1.",
            )
        if name in found:
            raise UsageError(f"--auth {name} is given twice.", hint="Leave one of them out.")
        auth = secret(variable.removeprefix("env:"), "--auth")
        try:
            found[name] = Binding(auth, urls=[url])
        except ValueError as error:
            raise UsageError(f"--auth {name}: {error}.") from error
    return found


def secret_variables(texts: list[str]) -> SecretVariables:
    """Read `NAME=env:VAR` arguments.

    Raises:
        UsageError: one is not of that form, its variable is not set, or a name is given twice or taken.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not rest.startswith("env:"):
            # what stands for the variable may be the secret itself
            raise UsageError(
                f"--secret {f'{name}=' if equals else ''}… is not of the form NAME=env:VAR.",
                hint="It looks like --secret DATABASE_URL=env:DATABASE_URL.",
            )
        check_name(name)
        if name in found:
            raise UsageError(f"--secret {name} is given twice.", hint="Leave one of them out.")
        found[name] = variable(rest.removeprefix("env:"), "--secret")
    return SecretVariables(found)


def variable(name: str, option: str) -> str:
    """Read a variable of the environment that has to be there.

    Raises:
        UsageError: it is not set, or empty. The text never holds its value.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UsageError(
            f"{option} wants the name of an environment variable, such as API_KEY.",
            hint="Put the value itself into that variable, not on the command line.",
        )
    value = os.environ.get(name)
    if value is None or not value.strip():
        raise UsageError(f"{option}: the environment variable {name} is not set.", hint="Export it first.")
    return value


def secret(name: str, option: str) -> StaticBearerAuth:
    """Make a credential source of a variable of the environment.

    Raises:
        UsageError: the variable is not set, empty, or cannot be a credential. The text never holds its value.
    """
    value = variable(name, option)
    if not (value.isascii() and value.isprintable()):
        raise UsageError(
            f"{option}: the environment variable {name} holds characters that no header can carry.",
            hint="It may end in a line break, or be something else than a key.",
        )
    return StaticBearerAuth(value)


def check_writable(path: Path) -> None:
    """Find out before the run, not after it, that its result could not be written.

    Raises:
        UsageError: the file's folder does not exist or cannot be written.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not replaceable(path):
            return
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write --json-out {path}: {error.strerror}.", hint="Name a file in a folder you can write."
        ) from error


def replaceable(path: Path) -> bool:
    """Whether a file can take the place of what is there: not of a pipe or a device such as /dev/stdout."""
    return path.is_file() or not path.exists()


def write_report(path: Path, data: bytes) -> None:
    """Write a report: whole or not at all, unless it goes to a pipe or a device.

    Raises:
        OSError: as the operating system says.
    """
    if replaceable(path):
        # what a link points to is meant, not the link
        write_atomically(path.resolve(), data)
    else:
        path.write_bytes(data)
