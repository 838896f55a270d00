"""A rollout's transcript while it still grows, for a runtime that watches the rollout.

A runtime sets the context variable; an environment hands over the list that it will go on appending to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["_TRANSCRIPT_OBSERVER", "show_transcript"]

_TRANSCRIPT_OBSERVER: ContextVar[Callable[[list[Any]], None] | None] = ContextVar(
    "benchmax_transcript_observer", default=None
)


def show_transcript(messages: list[Any]) -> None:
    """Show the runtime, if one watches, the live list of the messages of the rollout that calls this.

    Should the rollout never end, what the list then holds is all there is to see of it. `BaseEnv` calls this itself.

    Args:
        messages: Chat messages in order; appended to, and otherwise left alone, while the rollout runs.
    """
    observer = _TRANSCRIPT_OBSERVER.get()
    if observer is not None:
        observer(messages)
