"""Rollouts made to run at the same time: their calls of the model go on together, however fast each would be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from runner.gateway.exchange import Answer, CallTrace, Exchange, ModelCall, Upstream

PATIENCE_S: Final = 0.3
"""How long calls wait for the other rollouts to make theirs: those may be at work, or wait for a lock of these."""

MAX_VAIN: Final = 3
"""Times that they waited in vain, after which none waits any more."""


class Lockstep:
    """An `Exchange` before which calls wait until every rollout that has not ended has made one.

    Args:
        inner: What then answers.
        rollout_ids: Who takes part.
    """

    def __init__(self, inner: Exchange, rollout_ids: Iterable[str]) -> None:
        self._inner = inner
        self._active = set(rollout_ids)
        self._waiting: set[str] = set()
        self._opened = asyncio.Event()
        self._vain = 0

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers; calls under bindings do not wait."""
        answering = self._inner.upstream(rollout_id, binding, default)
        return answering if binding is not None else _Gated(self, rollout_id, answering)

    def finished(self, trace: CallTrace) -> None:
        """A call is over."""
        self._inner.finished(trace)

    def ended(self, rollout_ids: Iterable[str]) -> None:
        """Rollouts have ended: nobody waits for them."""
        self._active.difference_update(rollout_ids)
        self._waiting &= self._active
        self._open_if_all()

    async def arrive(self, rollout_id: str) -> None:
        """Wait for the others."""
        if self._vain >= MAX_VAIN or rollout_id not in self._active:
            return
        self._waiting.add(rollout_id)
        opened = self._opened
        self._open_if_all()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await opened.wait()
        except TimeoutError:
            if not opened.is_set():
                self._vain += 1
                self._open()

    def _open_if_all(self) -> None:
        if self._waiting and self._waiting >= self._active:
            self._open()

    def _open(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()
        self._waiting.clear()


class _Gated:
    def __init__(self, lockstep: Lockstep, rollout_id: str, inner: Upstream) -> None:
        self._lockstep = lockstep
        self._rollout_id = rollout_id
        self._inner = inner

    async def send(self, call: ModelCall) -> Answer:
        """Send a call on when the others are there.

        Raises:
            UpstreamError: as the inner one does.
        """
        await self._lockstep.arrive(self._rollout_id)
        return await self._inner.send(call)
