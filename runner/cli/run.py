"""`benchmax run`: rollouts of an artifact, isolated."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from benchmax.auth import StaticBearerAuth
from runner.artifact import read_artifact, write_atomically
from runner.broker import Binding
from runner.cli.console import results, say, write_json
from runner.cli.progress import Progress
from runner.errors import UsageError
from runner.limits import Limits
from runner.models import parse_model
from runner.provision import Cache
from runner.report import Report
from runner.report.table import show
from runner.report.text import printable
from runner.run import Run, RunPlan


def execute(arguments: argparse.Namespace) -> int:
    """Run what the arguments say."""
    plan = plan_of(arguments)
    artifact = read_artifact(arguments.dir)
    if arguments.json_out is not None:
        check_writable(arguments.json_out)

    async def work() -> tuple[Report | None, bool]:
        run = Run(artifact, plan, cache=Cache(), on_event=lambda event: progress.on_event(event))
        with Progress(lambda: run.expected) as progress:
            try:
                return await run.run(), False
            except asyncio.CancelledError:
                return run.report(), True

    report, interrupted = asyncio.run(work())
    if report is not None:
        _show(report, arguments)
    if interrupted:
        say("interrupted; what is shown is partial" if report is not None else "interrupted")
        return 130
    assert report is not None
    return 0 if report.ok == report.expected else 1


def _show(report: Report, arguments: argparse.Namespace) -> None:
    console = results(json=arguments.json)
    if arguments.show_output:
        _show_output(report)
    show(report, console)
    if arguments.json:
        write_json(report.to_json())
    if arguments.json_out is not None:
        try:
            write_atomically(arguments.json_out, report.to_json())
        except OSError as error:
            raise UsageError(f"cannot write {arguments.json_out}: {error.strerror}.") from error
        console.print(f"report: {arguments.json_out}", soft_wrap=True)


def _show_output(report: Report) -> None:
    """Print what the bundle printed and logged, on standard error."""
    for name, text in report.worker_output.items():
        if text:
            print(f"--- {name} outside of rollouts", printable(text), sep="\n", file=sys.stderr)  # noqa: T201
    for outcome in report.outcomes:
        if outcome.logs or outcome.dropped_logs:
            print(f"--- {printable(outcome.rollout_id)}", file=sys.stderr)  # noqa: T201
            for line in outcome.logs:
                print(f"{line.logger or line.stream}: {printable(line.text)}", file=sys.stderr)  # noqa: T201
            if outcome.dropped_logs:
                print(f"… {outcome.dropped_logs} more lines were dropped", file=sys.stderr)  # noqa: T201


def plan_of(arguments: argparse.Namespace) -> RunPlan:
    """Turn parsed arguments into a plan.

    Raises:
        UsageError: one of them cannot be meant.
    """
    limits = Limits()
    if arguments.timeout is not None:
        try:
            limits = Limits(rollout_s=arguments.timeout)
        except ValueError as error:
            raise UsageError(f"--timeout: {error}.") from error
    if arguments.api_key_env is not None and arguments.base_url is None:
        raise UsageError("--api-key-env needs --base-url.", hint="The mock and local models want no key.")
    key = None if arguments.api_key_env is None else secret(arguments.api_key_env, "--api-key-env")
    return RunPlan(
        model=parse_model(arguments.model, base_url=arguments.base_url),
        model_auth=None if key is None else StaticBearerAuth(key),
        auth=dict(binding(text) for text in arguments.auth),
        data=arguments.data,
        split=arguments.split,
        max_examples=arguments.max_examples,
        group_size=arguments.group_size,
        max_in_flight=arguments.max_in_flight,
        workers=arguments.workers,
        sandbox=arguments.sandbox,
        network=arguments.network,
        credentials=arguments.credentials,
        limits=limits,
        python=arguments.python,
        index_url=arguments.index_url,
    )


def binding(text: str) -> tuple[str, Binding]:
    """Read `NAME=env:VAR@URL`.

    Raises:
        UsageError: it is not of that form, or the variable is not set.
    """
    name, equals, rest = text.partition("=")
    variable, at, url = rest.partition("@")
    if not name.strip() or not equals or not variable.startswith("env:") or not at:
        raise UsageError(f"--auth {text!r} is not of the form NAME=env:VAR@URL.")
    try:
        return name, Binding(StaticBearerAuth(secret(variable.removeprefix("env:"), "--auth")), urls=[url])
    except ValueError as error:
        raise UsageError(f"--auth {name}: {error}.") from error


def secret(variable: str, option: str) -> str:
    """Read a secret from the environment.

    Raises:
        UsageError: the variable is not set, or empty.
    """
    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"{option}: the environment variable {variable} is not set.", hint="Export it first.")
    return value


def check_writable(path: Path) -> None:
    """Find out before the run, not after it, that its result could not be written.

    Raises:
        UsageError: the file's folder does not exist or cannot be written.
    """
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or path.is_dir():
        raise UsageError(f"cannot write {path}.", hint="Its folder must exist and be writable.")
