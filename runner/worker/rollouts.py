"""Stands between an environment's `run_group` and its `run_rollout`: knows which rollouts run, and can fail one.

The environment object gets an instance attribute `run_rollout` that wraps its own. This works with every release of
benchmax, and a rollout that is out of time fails as an ordinary `RolloutFailure`, so its siblings go on.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from threading import get_ident
from time import perf_counter
from typing import Any

from benchmax.envs.environment import Environment
from benchmax.envs.logging import _CURRENT_ROLLOUT_ID
from benchmax.envs.shared_types import RolloutAttempt, RolloutFailure, RolloutRequest

from .calls import CURRENT_CALL, CallState

Messages = list[Any]
OBSERVER: ContextVar[Callable[[Messages], None] | None] | None
try:
    from benchmax.envs.transcript import _TRANSCRIPT_OBSERVER as OBSERVER
except ImportError:
    # another release of benchmax shows a transcript only with the attempt
    OBSERVER = None


OnEnded = Callable[[CallState, str, float, RolloutAttempt | None, Messages | None], Awaitable[None] | None]


class RolloutGuard:
    """Wraps one environment's `run_rollout`.

    Args:
        on_ended: Called when a rollout has run: its call, id, seconds, its attempt unless it raised, and the messages
            that it has shown, if it has. What it returns is awaited, unless the rollout raised: a caller that does not
            keep up holds rollouts back.
    """

    def __init__(self, on_ended: OnEnded) -> None:
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
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
        if state is None or (rollout_id := request.rollout_id) in state.running or rollout_id not in state.pending:
            # the environment runs rollouts of its own inside a call
            return await self._original(request)
        # named where it is known, since finding the running loop takes a system call
        task = asyncio.current_task(self._loop if get_ident() == self._thread else None)
        assert task is not None
        state.running[rollout_id] = task
        started = perf_counter()
        attempt: RolloutAttempt | None = None
        try:
            if state.expired and (missed := state.expired.get(rollout_id)) is not None:
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
            seconds = perf_counter() - started
            state.running.pop(rollout_id, None)
            state.pending.discard(rollout_id)
            messages = state.transcripts.pop(rollout_id, None) if state.transcripts else None
            returned = attempt if isinstance(attempt, RolloutAttempt) else None
            telling = self._on_ended(state, rollout_id, seconds, returned, messages)
        if telling is not None:
            await telling
        if state.expired and (deadline := state.expired.get(rollout_id)) is not None:
            # it was told to stop, finished all the same, and is late
            raise RolloutFailure(deadline.reason, deadline.message)
        return attempt


def watch_transcripts() -> None:
    """Have the rollouts of the current call show their messages while they run."""
    if OBSERVER is not None:
        OBSERVER.set(_keep)


def _keep(messages: Messages) -> None:
    state = CURRENT_CALL.get()
    # a subclass may do anything when it is read, and another thread will do that
    if state is None or type(messages) is not list:
        return
    rollout_id = _CURRENT_ROLLOUT_ID.get()
    if rollout_id is None and len(state.running) == 1:
        # a single rollout, which runs without the context of a group's
        (rollout_id,) = state.running
    if rollout_id is not None and rollout_id in state.running:
        state.transcripts[rollout_id] = messages
