"""Automatic capture: pickle, look what is still local, take that in by value, pickle again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from benchmax.bundle.capture.references import find_references
from benchmax.bundle.capture.serializer import CaptureSession
from benchmax.bundle.capture.sources import SourceScope

MAX_ROUNDS: Final = 10
"""A chain of more local modules than this, each known only from the one before, is refused rather than followed."""

logger = logging.getLogger("benchmax.bundle")


def capture_local_modules(
    pickled: bytes, pickle_again: Callable[[], bytes], session: CaptureSession, scope: SourceScope
) -> bytes:
    """Capture the project-local modules a pickle refers to, and those they refer to in turn.

    Args:
        pickled: The pickle so far.
        pickle_again: Makes the same pickle under the registrations of that moment.
        session: Takes the registrations.
        scope: Says what is project-local.

    Returns:
        The last pickle. What could not be captured is still a reference in it.
    """
    handled: set[str] = set()
    for _ in range(MAX_ROUNDS):
        fresh = [name for name in local_references(pickled, scope) if name not in handled]
        if not fresh:
            break
        logger.warning("auto-bundling local module(s): %s. Their source travels with the bundle.", ", ".join(fresh))
        for name in fresh:
            session.capture(name)
        handled.update(fresh)
        pickled = pickle_again()
    return pickled


def local_references(pickled: bytes, scope: SourceScope) -> list[str]:
    """Return the project-local modules a pickle refers to, sorted."""
    return [name for name in find_references(pickled).modules if scope.is_project_local(name)]
