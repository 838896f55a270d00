"""The caller's side of a worker's sandboxes for trials: who may have one, and how it is handed over.

Comes in: `open-trial` messages, each of which may be forged. Goes out: exactly one answer to each, and before a good
one the near end of the sandbox's stream, as a descriptor. Refuses, as `FrameError`, to go on with a worker that asks
for more than it waits for.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from runner.conversation import Conversation
from runner.errors import FrameError
from runner.limits import MAX_TEXT_CHARS, MAX_TRIAL_REQUESTS
from runner.protocol import TRIAL_NUMBER, AuthToWorker, OpenTrial, TrialOpened, TrialRefused
from runner.text import bounded
from runner.trials.desk import TrialDesk, TrialRefusedError
from runner.trials.request import TrialRequest


class TrialLink:
    """Answers one worker's requests for sandboxes.

    Args:
        sock: Where sandboxes are handed over.
        desk: Makes them, and ends them.
        conversation: The worker's calls; only a rollout that runs may have one.
        send: Sends an answer.
        on_lie: Called when no honest worker would have done what it did.
    """

    def __init__(
        self,
        sock: socket.socket,
        desk: TrialDesk,
        conversation: Conversation,
        send: Callable[[AuthToWorker], None],
        on_lie: Callable[[FrameError], None],
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._desk = desk
        self._conversation = conversation
        self._send = send
        self._on_lie = on_lie
        self._opening: dict[asyncio.Task[None], OpenTrial | None] = {}
        """Without the request where that is answered already."""
        conversation.on_fewer = self._review

    def ask(self, request: OpenTrial) -> None:
        """Answer one request, when there is a sandbox or it is known that there is none.

        Raises:
            FrameError: too many of the worker's requests wait at once.
        """
        if len(self._opening) >= MAX_TRIAL_REQUESTS:
            raise FrameError(f"more than {MAX_TRIAL_REQUESTS} requests for sandboxes at once.")
        task = asyncio.get_running_loop().create_task(self._open(request), name="benchmax-open-trial")
        self._opening[task] = request
        task.add_done_callback(self._opening.pop)

    async def aclose(self) -> None:
        """End every sandbox of the worker, also one that is just being made. Safe to call twice."""
        opening = [*self._opening]
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        await self._desk.aclose()
        self._socket.close()

    def abandon(self) -> None:
        """The same without an event loop, when the one that this belongs to is closed."""
        self._desk.abandon()
        self._socket.close()

    async def _open(self, request: OpenTrial) -> None:
        if not self._runs(request):
            return
        wanted = TrialRequest(
            rollout_id=request.rollout,
            cpus=request.cpus,
            memory_bytes=request.memory_bytes,
            disk_bytes=request.disk_bytes,
            network=request.network,
            call=request.call,
        )
        try:
            stream = await self._desk.open(wanted)
        except TrialRefusedError as error:
            self._refuse(request, f"{error}")
            return
        with stream:
            if self._runs(request):
                self._hand_over(request, stream)

    def _review(self) -> None:
        """Fewer rollouts run than before: the others get nothing more, and keep nothing when they have ended."""
        self._desk.end_unused(lambda had: self._conversation.in_progress(had.call, had.rollout_id))
        for task, request in self._opening.items():
            if request is not None and not task.done() and not self._runs(request):
                self._opening[task] = None
                task.cancel()

    def _runs(self, request: OpenTrial) -> bool:
        runs = self._conversation.runs(request.call, request.rollout)
        if not runs:
            self._refuse(request, f"no rollout {request.rollout!r} runs in this call.")
        return runs

    def _hand_over(self, request: OpenTrial, stream: socket.socket) -> None:
        try:
            socket.send_fds(self._socket, [TRIAL_NUMBER.pack(request.request)], [stream.fileno()])
        except BlockingIOError:
            # it never has so many that it does not fetch
            self._on_lie(FrameError("sandboxes are not fetched"))
        except OSError:
            # the worker is gone, and will be told of
            return
        else:
            self._send(TrialOpened(request=request.request))

    def _refuse(self, request: OpenTrial, why: str) -> None:
        self._send(TrialRefused(request=request.request, message=bounded(why, MAX_TEXT_CHARS)))
