"""What work on a job of any kind is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runner.provision import Cache
from runner.service.executor.confinement import Confinement
from runner.service.executor.inputs import Inputs
from runner.service.executor.outbox import Outbox
from runner.service.settings import Settings

Judgement = Literal["valid", "invalid", "unjudged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job, and what there is to do it with.

    Args:
        job_id: Its id.
        token: With which it asks the service's own models.
        spec: What its client asked for.
        inputs: Its files.
        folder: For what it writes.
        outbox: Takes its events.
        settings: The service's.
        confinement: How bundles are confined here.
        cache: Where venvs are kept.
    """

    job_id: str
    token: str
    spec: Mapping[str, Any]
    inputs: Inputs
    folder: Path
    outbox: Outbox
    settings: Settings
    confinement: Confinement
    cache: Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A job that was done.

    Args:
        judgement: What was found of the bundle; `None` where that is not the question.
        error: Why nothing came of it, where that is the bundle's fault; empty otherwise.
        results: Files to keep, by role.
    """

    judgement: Judgement | None = None
    error: str = ""
    results: Mapping[str, bytes] = field(default_factory=dict)
