"""`benchmax executor`: a process that takes a service's jobs and runs them."""

from __future__ import annotations

import argparse

from runner.cli.console import say
from runner.cli.service_settings import settings_of
from runner.service import executor


def execute(arguments: argparse.Namespace) -> int:
    """Be an executor until a signal ends it."""
    settings = settings_of(arguments)
    say("executor: starting; SIGTERM ends it when the job under way is over")
    return executor.execute(settings)
