"""Where the trial sandboxes of one worker come from: bounded, in the order asked for, ended with it at the latest."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from runner.egress import Handler
from runner.limits import Limits
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.policy import SandboxPolicy
from runner.trials.policy import trial_policy
from runner.trials.request import TrialRefusedError as TrialRefusedError  # what `open` raises is at hand where it is
from runner.trials.request import TrialRequest
from runner.trials.trial_sandbox import TrialSandbox


class TrialDesk:
    """Makes sandboxes for one worker. Belongs to the event loop it is used in.

    Args:
        limits: How many there may be, and what each may use.
        worker: How the worker is confined; its sandboxes reach what it does, and nothing else.
        routes: What becomes of connections to each of the worker's endpoints.
    """

    def __init__(self, limits: Limits, worker: SandboxPolicy, routes: Mapping[Endpoint, Handler] | None = None) -> None:
        self._limits = limits
        self._worker = worker
        self._routes = routes or {}
        self._open: dict[TrialSandbox, TrialRequest] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._waiting: dict[asyncio.Future[None], str] = {}
        """Turns that have not come, in the order asked for, and the rollouts that wait for them."""
        self._closed = False

    async def open(self, request: TrialRequest) -> socket.socket:
        """Open a sandbox for one trial, when its turn comes: there are so many at once, and others asked before.

        Cancelled, it waits no more, and nothing of what was begun stays.

        Returns:
            A connected, non-blocking stream socket, owned by the caller. The sandbox ends when it is closed.

        Raises:
            TrialRefusedError: there is none to be had; the text says why.
        """
        self._refuse_late()
        await self._turn(request.rollout_id)
        try:
            policy = await asyncio.to_thread(
                trial_policy,
                request,
                self._limits,
                network=self._worker.network,
                endpoints=self._worker.endpoints,
            )
            sandbox = await TrialSandbox.start(policy, lifetime_s=self._limits.trial_s, routes=self._routes)
        except BaseException:
            self._starting -= 1
            self._next()
            raise
        self._starting -= 1
        self._open[sandbox] = request
        ending = asyncio.get_running_loop().create_task(self._forget(sandbox), name="benchmax-trial-desk")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        try:
            self._refuse_late()
        except TrialRefusedError:
            sandbox.client.close()
            await sandbox.end()
            raise
        return sandbox.client

    def end_unused(self, used: Callable[[TrialRequest], bool]) -> None:
        """End the sandboxes of requests that have no more use for them, without waiting for it."""
        for sandbox, request in self._open.items():
            if not used(request):
                sandbox.kill()

    async def aclose(self) -> None:
        """End all sandboxes, and open no more. Safe to call twice."""
        self._closed = True
        while self._waiting:
            # it finds out that it is too late
            self._call_next()
        if self._open:
            await asyncio.gather(*(sandbox.end() for sandbox in [*self._open]))
        if self._ending:
            await asyncio.wait([*self._ending])

    def abandon(self) -> None:
        """The same without an event loop, when the one that this belongs to is closed."""
        self._closed = True
        for sandbox in self._open:
            sandbox.abandon()

    def _refuse_late(self) -> None:
        if self._closed:
            raise TrialRefusedError("a trial sandbox cannot be opened: the worker has ended.")

    async def _turn(self, rollout_id: str) -> None:
        """Wait until there is room, and take it.

        Raises:
            TrialRefusedError: there would never be any, or the worker has ended meanwhile.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = rollout_id
        self._next()
        try:
            if not turn.done():
                self._refuse_deadlock(rollout_id)
            await turn
            self._refuse_late()
        except BaseException:
            if turn.done() and not turn.cancelled():
                # it came, and is of no use any more
                self._starting -= 1
                self._next()
            raise
        finally:
            self._waiting.pop(turn, None)

    def _next(self) -> None:
        """Give room to those whose turn it is."""
        while self._waiting and self._starting + len(self._open) < self._limits.trial_sandboxes:
            self._call_next()

    def _call_next(self) -> None:
        turn = next(iter(self._waiting))
        del self._waiting[turn]
        if not turn.done():
            self._starting += 1
            turn.set_result(None)

    def _refuse_deadlock(self, rollout_id: str) -> None:
        """Refuse to wait where every sandbox is held by a rollout that waits for another one, as this one does."""
        waiting = self._waiting.values()
        if self._open and all(rollout_id != request.rollout_id for request in self._open.values()):
            return
        if self._starting == 0 and all(
            request.rollout_id in waiting and not sandbox.left for sandbox, request in self._open.items()
        ):
            raise TrialRefusedError(
                f"a trial sandbox cannot be opened: {self._limits.trial_sandboxes} at once are allowed, and each is "
                "held by a trial that waits for another one. Run fewer trials at the same time "
                "(max_concurrent_trials), or raise the limit trial_sandboxes."
            )

    async def _forget(self, sandbox: TrialSandbox) -> None:
        await sandbox.exited()
        del self._open[sandbox]
        self._next()
