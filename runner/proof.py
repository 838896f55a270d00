"""Whether a bundle loads and constructs where its author's files and packages are not: tried as a run would begin.

Comes in: a bundle just made. Goes out: what is wrong with it. A try that this machine does not allow proves nothing,
and is said to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.artifact import Artifact
from runner.errors import RemoteError, RunnerError, UsageError
from runner.isolating import isolate
from runner.limits import Limits
from runner.provision import Cache, ProvisionOptions
from runner.record import Event, PhaseEvent

_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in ', re.MULTILINE)
_TRAVELLED: Final = "<dynamic-code>"
_FIX: Final = (
    "Declare the packages it needs with --pip, take your own modules along with --local-module, read data below "
    "base_dir; a variable that the constructor needs is handed over with --secret NAME=env:VAR."
)


async def prove(
    artifact: Artifact,
    *,
    python: str | None,
    secrets: Mapping[str, str],
    cache: Cache,
    provisioning: ProvisionOptions,
    limits: Limits,
    source: str,
    tell: Callable[[str, str], None],
) -> list[Finding]:
    """Load a bundle and construct its environment in a sandboxed worker, with the declared packages alone.

    Args:
        artifact: The bundle.
        python: An interpreter of its series; found by itself when `None`.
        secrets: Variables for the worker.
        cache: Where venvs are kept.
        provisioning: How packages are looked for, and how strongly both installing and the worker are confined.
        limits: What the worker may use.
        source: The one file that all code of the bundle comes from; empty if there are several.
        tell: Told each phase and what happens in it.

    Returns:
        Nothing if it works; else one finding: an error, or a warning if it could not be tried here.

    Raises:
        UsageError: an option cannot be meant.
    """

    def on_event(event: Event) -> None:
        if isinstance(event, PhaseEvent):
            tell(event.phase, event.message)

    env = isolate(
        artifact,
        sandbox=provisioning.sandbox,
        secrets=secrets,
        limits=limits,
        python=python,
        provisioning=provisioning,
        cache=cache,
        on_event=on_event,
    )
    try:
        async with env:
            return []
    except UsageError:
        raise
    except RunnerError as error:
        return [_unproved(error) if error.fault == "host" else _refuted(error, source)]


def _refuted(error: RunnerError, source: str) -> Finding:
    file, line = _place(error.remote_traceback, source) if isinstance(error, RemoteError) else ("", 0)
    return Finding(
        severity="error",
        code="does-not-load",
        what="the bundle",
        message=f"in a process of its own, {error.message.rstrip('.')}",
        fix=error.hint or _FIX,
        file=file,
        line=line,
    )


def _unproved(error: RunnerError) -> Finding:
    return Finding(
        severity="warning",
        code="not-verified",
        what="the bundle",
        message=f"whether it loads elsewhere could not be tried: {error.message.rstrip('.')}",
        fix=error.hint or "Run it with `benchmax run` where that works.",
    )


def _place(traceback: str, source: str) -> tuple[str, int]:
    """Return the last place in a traceback that is the author's: some cloudpickles replace the file of what travels."""
    lines = [int(line) for file, line in _FRAME.findall(traceback) if file in (_TRAVELLED, source)]
    return (source, lines[-1]) if lines and source else ("", 0)
