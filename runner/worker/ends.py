"""The news that rollouts have run, told to the caller several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from benchmax.envs.environment import Environment

from ..protocol import RolloutsEnded
from .calls import CallState

WAIT_S: Final = 0.01
"""How long the news may wait: what its group settles meanwhile makes it unnecessary."""


class Ends:
    """Collects which rollouts have run, in their call's state, until the caller has been told.

    Args:
        send: Sends one message.
        flush: Has what was sent leave at once.
    """

    def __init__(self, send: Callable[[RolloutsEnded], None], flush: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._flush = flush
        self._scores = False
        self._untold: list[CallState] = []
        self._timer: asyncio.TimerHandle | None = None

    def look_at(self, env: Environment[Any, Any]) -> None:
        """Find out whether code of the author's runs once all rollouts of a group have: it scores the group."""
        own = (type(env).run_group, type(env).compute_group_rewards)
        self._scores = own != (Environment.run_group, Environment.compute_group_rewards)

    def add(self, state: CallState, rollout_id: str, seconds: float) -> None:
        """A rollout has run."""
        if self._scores and not state.pending:
            # scoring may never yield, and its deadline begins with this news
            state.seconds[rollout_id] = seconds
            self.tell(state)
            self._flush()
            return
        if not state.seconds:
            self._untold.append(state)
        state.seconds[rollout_id] = seconds
        if self._timer is None:
            self._timer = self._loop.call_later(WAIT_S, self._tell_all)

    def tell(self, state: CallState) -> None:
        """Tell now what has not been told of a call."""
        if state.seconds:
            rollouts, seconds = [*state.seconds], [*state.seconds.values()]
            state.seconds.clear()
            self._send(RolloutsEnded(call=state.call, rollouts=rollouts, seconds=seconds))

    def _tell_all(self) -> None:
        self._timer = None
        untold, self._untold = self._untold, []
        for state in untold:
            if not state.over:
                self.tell(state)
