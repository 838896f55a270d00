"""What a constructed environment says about itself, as the message that it is ready."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from benchmax.envs.environment import Environment

from ..limits import MAX_DIAGNOSTICS, MAX_ID_CHARS, MAX_TEXT_CHARS
from ..protocol import Diagnostic, Ready
from ..text import bounded


def ready_message(env: Environment[Any, Any]) -> Ready:
    """Ask the environment; whatever its author's code raises is raised here."""
    diagnose: Callable[[], Any] = getattr(env, "validation_diagnostics", tuple)
    diagnostics = [
        Diagnostic(
            severity=finding.severity,
            code=bounded(str(finding.code), MAX_TEXT_CHARS),
            message=bounded(str(finding.message), MAX_TEXT_CHARS),
            location=None if finding.location is None else bounded(str(finding.location), MAX_TEXT_CHARS),
        )
        for finding in itertools.islice(diagnose(), MAX_DIAGNOSTICS + 1)
    ]
    if len(diagnostics) > MAX_DIAGNOSTICS:
        more = f"there are more findings; the first {MAX_DIAGNOSTICS - 1} are shown"
        diagnostics[MAX_DIAGNOSTICS - 1 :] = [Diagnostic(severity="warning", code="more_findings", message=more)]
    return Ready(
        environment=bounded(type(env).__qualname__, MAX_ID_CHARS),
        scorable_termination_reasons=sorted(bounded(str(r), MAX_ID_CHARS) for r in env.scorable_termination_reasons),
        requires_public_model_endpoint=bool(env.requires_public_model_endpoint),
        diagnostics=diagnostics,
        scores_groups=any(_is_own(env, name) for name in ("compute_group_rewards", "run_group")),
    )


def _is_own(env: Environment[Any, Any], name: str) -> bool:
    """Whether a method is not the one that all environments inherit."""
    return getattr(getattr(env, name), "__func__", None) is not getattr(Environment, name)
