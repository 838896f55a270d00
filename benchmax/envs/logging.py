"""Which rollout, or which group, a log record belongs to.

A runtime's log handler reads the two context variables; tasks created inside inherit them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Generic, TypeVar

__all__ = ["_CURRENT_GROUP_RIDS", "_CURRENT_ROLLOUT_ID", "group_context", "rollout_context"]

_CURRENT_ROLLOUT_ID: ContextVar[str | None] = ContextVar("benchmax_capture_rollout_id", default=None)
_CURRENT_GROUP_RIDS: ContextVar[tuple[str, ...] | None] = ContextVar("benchmax_capture_group_rids", default=None)

ValueT = TypeVar("ValueT")


class _Attribution(Generic[ValueT]):
    """Sets a context variable for a `with` block."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[ValueT | None], value: ValueT) -> None:
        self._variable = variable
        self._value = value
        self._token: Token[ValueT | None] | None = None

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        try:
            if token is not None:
                self._variable.reset(token)
        except ValueError:
            # left in another context than it was entered in, as happens to a generator finalised elsewhere
            self._variable.set(None)


def rollout_context(rollout_id: object) -> _Attribution[str]:
    """Attribute what is logged inside the `with` block to the rollout `str(rollout_id)`."""
    return _Attribution(_CURRENT_ROLLOUT_ID, str(rollout_id))


def group_context(rollout_ids: Iterable[object]) -> _Attribution[tuple[str, ...]]:
    """Attribute what is logged inside the `with` block to the group of rollouts with these ids."""
    return _Attribution(_CURRENT_GROUP_RIDS, tuple(map(str, rollout_ids)))
