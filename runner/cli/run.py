"""`benchmax run`: rollouts of an artifact, isolated."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from runner.artifact import read_artifact, write_atomically
from runner.cli.console import console, results, say, write_json
from runner.cli.credentials import bindings, secret, secret_variables
from runner.cli.interrupt import EXIT_INTERRUPTED, InterruptedRunError, run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.cli.recorded import Undertaking, replayed, resumed, show_replay
from runner.errors import RunnerError, UsageError
from runner.limits import Limits
from runner.models import parse_model
from runner.provision import Cache
from runner.recording.course import Course
from runner.recording.recording import Recording
from runner.report import Report
from runner.report.page import page
from runner.report.table import show
from runner.run import Run, RunPlan
from runner.text import one_line, printable

_PLAIN: Final = (
    "data", "split", "max_examples", "group_size", "max_in_flight", "workers", "sandbox", "network", "credentials",
)  # fmt: skip
"""Options that a plan takes as they are; those that are not given are as it has them."""


def execute(arguments: argparse.Namespace) -> int:
    """Run what the arguments say."""
    for option, path in (("--json-out", arguments.json_out), ("--report", arguments.report)):
        if path is not None:
            check_writable(path, option)
    undertaking = _undertaking(arguments)
    course = undertaking.course
    if isinstance(course, Recording) and (finished := course.finished()) is not None:
        say(f"nothing is left to do: every rollout of {arguments.resume} has its outcome")
        _show(finished, arguments)
        return 0 if finished.good else 1
    run = Run(
        undertaking.artifact,
        undertaking.plan,
        cache=Cache(),
        on_event=lambda event: progress.on_event(event),
        course=course,
    )
    interrupted = False
    report: Report | None
    with Progress(run.tally) as progress:
        try:
            report = run_interruptible(run.run(), tell=progress.note, force=run.kill, leave=progress.abandon)
        except InterruptedRunError:
            interrupted = True
            report = run.report()
    if report is not None:
        _show(report, arguments)
    if interrupted:
        kept = arguments.record or arguments.resume
        more = f"; `benchmax run --resume {kept}` goes on" if kept is not None and kept.exists() else ""
        what = "interrupted; what is shown is partial" if report is not None else "interrupted before a rollout ran"
        say(f"{what}{more}")
        return EXIT_INTERRUPTED
    assert report is not None
    return 0 if report.good else 1


def _undertaking(arguments: argparse.Namespace) -> Undertaking:
    if arguments.resume is not None:
        return resumed(arguments)
    if arguments.replay is not None:
        return replayed(arguments)
    if arguments.dir is None:
        raise UsageError(
            "one of these is required: DIR, --resume OUT or --replay OUT.", hint="See `benchmax run --help`."
        )
    plan = plan_of(arguments)
    artifact = read_artifact(arguments.dir)
    if arguments.record is None:
        return Undertaking(artifact, plan, Course())
    if arguments.credentials not in (None, "gateway"):
        raise UsageError(
            f"--record needs the gateway, and --credentials is {arguments.credentials}.",
            hint="Leave out --credentials: what models are asked is recorded where the credentials are put in.",
        )
    plan = replace(plan, credentials="gateway")
    own = tuple(path for path in (arguments.json_out, arguments.report) if path is not None)
    return Undertaking(artifact, plan, Recording.new(arguments.record, artifact, plan, leave_out=own))


def _show(report: Report, arguments: argparse.Namespace) -> None:
    data = report.to_json()
    table = results(json=arguments.json)
    # the page last: whatever became of making it, the data is there
    files: dict[Path, Callable[[], bytes]] = {}
    if arguments.json_out is not None:
        files[arguments.json_out] = lambda: data
    if arguments.report is not None:
        files[arguments.report] = lambda: page(report)
    # before anything is shown, since whoever reads that may be gone
    unwritten = write_views(files)
    if arguments.show_output:
        _show_output(report)
    show(report, table)
    if report.replay is not None:
        show_replay(report.replay, table)
    if arguments.json:
        write_json(data)
    if unwritten is not None:
        unwritten.hint = "The rollouts ran; see the table above."
        raise unwritten
    for path in files:
        table.print(f"report: {path}", soft_wrap=True)
    if arguments.record is not None:
        table.print(f"record: {arguments.record}", soft_wrap=True)


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
    given: dict[str, Any] = {name: value for name in _PLAIN if (value := getattr(arguments, name)) is not None}
    return RunPlan(
        model=parse_model(arguments.model or "mock", base_url=arguments.base_url),
        model_auth=key,
        auth=bindings(arguments.auth),
        allow=tuple(arguments.allow),
        secrets=secret_variables(arguments.secret),
        limits=limits,
        python=arguments.python,
        provisioning=provision_options(arguments),
        **given,
    )


def check_writable(path: Path, option: str = "--json-out") -> None:
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
            f"cannot write {option} {path}: {error.strerror}.", hint="Name a file in a folder you can write."
        ) from error


def write_views(files: Mapping[Path, Callable[[], bytes]]) -> RunnerError | None:
    """Write every view that can be written; return what is to be said of one that cannot."""
    unwritten = None
    for path, view in files.items():
        try:
            write_report(path, view())
        except OSError as error:
            unwritten = RunnerError(f"cannot write {path}: {error.strerror}.")
            unwritten.__cause__ = error
    return unwritten


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
