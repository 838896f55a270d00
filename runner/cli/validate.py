"""`benchmax validate`: whether an artifact does what an environment has to, and what is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from runner.cli.console import results, write_json
from runner.cli.credentials import bindings, secret, secret_variables
from runner.cli.interrupt import run_interruptible
from runner.cli.packages import provision_options
from runner.cli.progress import Progress
from runner.cli.run import check_writable, write_views
from runner.errors import UsageError
from runner.models import parse_model
from runner.provision import Cache
from runner.report.page import validation_page
from runner.validation import ValidationPlan, validate
from runner.validation.plan import limits_of
from runner.validation.table import show


def execute(arguments: argparse.Namespace) -> int:
    """Judge what the arguments say."""
    for option, path in (("--json-out", arguments.json_out), ("--report", arguments.report)):
        if path is not None:
            check_writable(path, option)
    plan = plan_of(arguments)
    with Progress() as progress:
        verdict = run_interruptible(
            validate(arguments.dir, plan, cache=Cache(), on_event=progress.on_event, keep=True),
            tell=progress.note,
            leave=progress.abandon,
        )
    data = verdict.to_json()
    table = results(json=arguments.json)
    # the page last: whatever became of making it, the data is there
    files: dict[Path, Callable[[], bytes]] = {}
    if arguments.json_out is not None:
        files[arguments.json_out] = lambda: data
    if arguments.report is not None:
        files[arguments.report] = lambda: validation_page(verdict)
    # before anything is shown, since whoever reads that may be gone
    unwritten = write_views(files)
    show(verdict, table)
    if arguments.json:
        write_json(data)
    if unwritten is not None:
        unwritten.hint = "The verdict is shown above."
        raise unwritten
    for path in files:
        table.print(f"{'page' if path == arguments.report else 'verdict'}: {path}", soft_wrap=True)
    return verdict.exit_code


def plan_of(arguments: argparse.Namespace) -> ValidationPlan:
    """Turn parsed arguments into a plan.

    Raises:
        UsageError: one of them cannot be meant.
    """
    if arguments.api_key_env is not None and arguments.base_url is None:
        raise UsageError("--api-key-env needs --base-url.", hint="The mock and local models want no key.")
    return ValidationPlan(
        model=parse_model(arguments.model or "mock", base_url=arguments.base_url),
        model_auth=None if arguments.api_key_env is None else secret(arguments.api_key_env, "--api-key-env"),
        auth=bindings(arguments.auth),
        data=arguments.data,
        split=arguments.split,
        sandbox=arguments.sandbox,
        network=arguments.network,
        allow=tuple(arguments.allow),
        secrets=secret_variables(arguments.secret),
        limits=limits_of(rollout_s=arguments.timeout, context_tokens=arguments.max_context_tokens),
        python=arguments.python,
        provisioning=provision_options(arguments),
    )
