"""Stands between an environment's `run_group` and its `run_rollout`: knows which rollouts run, and can fail one.

The environment object gets an instance attribute `run_rollout` that wraps its own. This works with every release of
benchmax, and a rollout that is out of time fails as an ordinary `RolloutFailure`, so its siblings go on.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Awaitable, Callable
from typing import Any

from benchmax.envs.environment import Environment
from benchmax.envs.shared_types import RolloutAttempt, RolloutFailure, RolloutRequest

from .calls import CURRENT_CALL, CallState

OnEnded = Callable[[CallState, str, float, RolloutAttempt | None], None]


class RolloutGuard:
    """Wraps one environment's `run_rollout`.

    Args:
        on_ended: Called when a rollout has run: its call, id, seconds, and its attempt unless it raised.
    """

    def __init__(self, on_ended: OnEnded) -> None:
        self._on_ended = on_ended
        self._original: Callable[[RolloutRequest[Any]], Awaitable[RolloutAttempt]] | None = None

    def install(self, env: Environment[Any, Any]) -> None:
        """Put the guard before the environment's own `run_rollout`."""
        self._original = env.run_rollout
        try:
            # past a frozen dataclass's own __setattr__
            object.__setattr__(env, "run_rollout", self.run)
        except AttributeError:
            # a class with slots has no room for it: a subclass of its own has
            guard = self
            kind = type(env)

            async def run_rollout(_self: object, request: RolloutRequest[Any]) -> object:
                return await guard.run(request)

            body = {"__slots__": (), "run_rollout": run_rollout, "__module__": kind.__module__, "__doc__": kind.__doc__}
            guarded = types.new_class(kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(body))
            guarded.__qualname__ = kind.__qualname__
            object.__setattr__(env, "__class__", guarded)

    async def run(self, request: RolloutRequest[Any]) -> RolloutAttempt:
        """Run one rollout under its deadline."""
        assert self._original is not None
        state = CURRENT_CALL.get()
        if state is None or request.rollout_id in state.running or request.rollout_id not in state.pending:
            # the environment runs rollouts of its own inside a call
            return await self._original(request)
        task = asyncio.current_task()
        assert task is not None
        rollout_id = request.rollout_id
        state.running[rollout_id] = task
        started = time.perf_counter()
        attempt: RolloutAttempt | None = None
        try:
            if (missed := state.expired.get(rollout_id)) is not None:
                # the environment let it wait for its turn until the time was over
                raise RolloutFailure(missed.reason, missed.message)
            attempt = await self._original(request)
        except asyncio.CancelledError:
            deadline = state.expired.get(rollout_id)
            if deadline is None:
                raise
            task.uncancel()
            raise RolloutFailure(deadline.reason, deadline.message) from None
        finally:
            state.running.pop(rollout_id, None)
            state.pending.discard(rollout_id)
            seconds = time.perf_counter() - started
            self._on_ended(state, rollout_id, seconds, attempt if isinstance(attempt, RolloutAttempt) else None)
        deadline = state.expired.get(rollout_id)
        if deadline is not None:
            # it was told to stop, finished all the same, and is late
            raise RolloutFailure(deadline.reason, deadline.message)
        return attempt
