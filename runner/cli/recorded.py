"""Runs of the command line that go on with a record, or replay one: by what it says, and by what it cannot say."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from runner.artifact import Artifact
from runner.broker import Binding
from runner.cli.credentials import bindings, secret, secret_variables
from runner.cli.packages import provision_options
from runner.errors import UsageError
from runner.models import ModelChoice
from runner.plan import RunPlan
from runner.recording.course import Course
from runner.recording.data import check_data
from runner.recording.facts import RecordFacts
from runner.recording.folder import RecordFolder
from runner.recording.recording import Recording
from runner.recording.replay import Replay, StandInAuth
from runner.recording.settings import Settings
from runner.report.replay import ReplayFacts
from runner.text import one_line
from runner.variables import SecretVariables

SHOWN_FINDINGS: Final = 5
"""Findings of a replay that are shown; what goes wrong everywhere mostly goes wrong in the same way."""

STAND_IN: Final = "benchmax-replay"
"""Value of a secret variable that a replay is not given: whoever needs one to construct a client has one."""


@dataclass(frozen=True, slots=True)
class Undertaking:
    """What is to be run, and how.

    Args:
        artifact: The bundle.
        plan: What to do with it.
        course: How it goes.
    """

    artifact: Artifact
    plan: RunPlan
    course: Course


def resumed(arguments: argparse.Namespace) -> Undertaking:
    """Go on with the record that the arguments name.

    Raises:
        UsageError: it cannot be gone on with, its data has changed, or an option contradicts it.
        RunnerError: it cannot be written.
    """
    folder = RecordFolder.open(arguments.resume, claim=True)
    try:
        facts = folder.read_facts()
        settings = facts.settings
        _check_options(arguments, settings)
        key = None if arguments.api_key_env is None else secret(arguments.api_key_env, "--api-key-env")
        auth = bindings(arguments.auth)
        secrets = secret_variables(arguments.secret)
        settings.check_credentials(
            model_auth=key, auth={name: binding.urls for name, binding in auth.items()}, secrets=tuple(secrets)
        )
        plan = settings.plan(
            data=_data(arguments, facts),
            model=settings.model.choice(),
            model_auth=key,
            auth=auth,
            secrets=secrets,
            provisioning=provision_options(arguments),
            python=arguments.python,
        )
        artifact = folder.read_artifact(facts.digest)
        return Undertaking(artifact, plan, Recording.resumed(folder, facts, artifact, plan))
    except BaseException:
        folder.close()
        raise


def replayed(arguments: argparse.Namespace) -> Undertaking:
    """Replay the record that the arguments name.

    Raises:
        UsageError: it was not finished or cannot be read, its data has changed, or an option contradicts it.
    """
    folder = RecordFolder.open(arguments.replay, claim=False)
    facts = folder.read_facts()
    settings = facts.settings
    for option, given in (("--api-key-env", arguments.api_key_env), ("--auth", arguments.auth)):
        if given:
            raise UsageError(f"{option} has no use in a replay: no model is asked.", hint="Leave it out.")
    _check_options(arguments, settings)
    given = secret_variables(arguments.secret)
    if unknown := given.keys() - {*settings.secrets}:
        raise UsageError(f"--secret {min(unknown)}: the record was made without it.", hint="Leave it out.")
    course = Replay(folder, facts)
    model = settings.model
    plan = settings.plan(
        data=_data(arguments, facts),
        model=ModelChoice(kind=model.kind, model=model.name, base_url=model.base_url),
        model_auth=StandInAuth() if settings.model_auth else None,
        auth={name: Binding(StandInAuth(), urls=urls) for name, urls in settings.bindings.items()},
        secrets=SecretVariables({name: given.get(name, STAND_IN) for name in settings.secrets}),
        provisioning=provision_options(arguments),
        python=arguments.python,
    )
    return Undertaking(folder.read_artifact(facts.digest), plan, course)


def show_replay(facts: ReplayFacts, console: Console) -> None:
    """Print how a replay compares with its record."""
    found = len(facts.findings) + facts.omitted
    text = f"replay: {facts.equal} of {facts.outcomes} outcomes are as recorded"
    if facts.unused_calls:
        plural = " was" if facts.unused_calls == 1 else "s were"
        text += f" · {facts.unused_calls} recorded model call{plural} not asked for"
    console.print(Text(text, style="red" if found else "green"), soft_wrap=True)
    for finding in facts.findings[:SHOWN_FINDINGS]:
        console.print(
            Text(f"{one_line(finding.rollout_id)}: {one_line(finding.message, 600)}", style="red"), soft_wrap=True
        )
    if found > SHOWN_FINDINGS:
        console.print(Text(f"… {found - SHOWN_FINDINGS} more findings, in the JSON", style="red"), soft_wrap=True)


def _data(arguments: argparse.Namespace, facts: RecordFacts) -> Path:
    """Find the data that was recorded."""
    path: Path = Path(facts.data_path) if arguments.data is None else arguments.data
    if not path.is_dir():
        raise UsageError(f"the recorded run's data is not at {path}.", hint="Say with --data where its folder is now.")
    check_data(path, facts.data)
    return path


def _check_options(arguments: argparse.Namespace, settings: Settings) -> None:
    """Refuse what is said otherwise than the record has it.

    Raises:
        UsageError: an option contradicts the record; both values are named.
    """
    if arguments.dir is not None:
        raise UsageError(
            f"{arguments.dir}: the artifact comes from the record; none is to be given.", hint="Leave it out."
        )
    for option, given, recorded in _compared(arguments, settings):
        if given is not None and given != recorded:
            raise UsageError(
                f"{option} {given} contradicts the record, which was made with {recorded}.",
                hint="Leave it out, or record another run.",
            )


def _compared(arguments: argparse.Namespace, settings: Settings) -> Iterator[tuple[str, object, object]]:
    for name in ("split", "max_examples", "group_size", "max_in_flight", "workers", "sandbox", "network"):
        recorded = getattr(settings, name)
        yield f"--{name.replace('_', '-')}", getattr(arguments, name), "all" if recorded is None else recorded
    yield "--timeout", arguments.timeout, settings.limits.get("rollout_s")
    yield "--credentials", arguments.credentials, "gateway"
    yield "--model", _spelled(arguments.model), settings.model.spelled
    yield "--base-url", arguments.base_url, settings.model.base_url or "a model of benchmax's own"
    yield "--allow", ", ".join(arguments.allow) or None, ", ".join(settings.allow) or "nothing beside the models"


def _spelled(model: str | None) -> str | None:
    """Name a script from wherever it is named as the record does."""
    if model is None or not model.startswith("mock:"):
        return model
    return f"mock:{Path(model.removeprefix('mock:')).expanduser().absolute()}"
