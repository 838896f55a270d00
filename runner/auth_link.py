"""The caller's end of a worker's auth channel: header requests, trials, where the worker is, whether its loop turns.

Comes in: the worker's messages on that channel. Goes out: what it asks for or refusals, what was learned. Refuses, as
`FrameError`, what no honest worker says.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from runner.broker import Broker
from runner.channel import Channel
from runner.conversation import Conversation
from runner.errors import FrameError
from runner.inspection import Inspector
from runner.launch import Launch, Launched
from runner.limits import MAX_FRAME_BYTES
from runner.protocol import (
    AuthFromWorker,
    AuthToWorker,
    HeaderRequest,
    Inspected,
    OpenTrial,
    Snapshot,
    Stalled,
    auth_from_worker_decoder,
)
from runner.record import StallEvent
from runner.redaction import Redactor
from runner.trial_link import TrialLink
from runner.trials.desk import TrialDesk

SPARE_STALLS: Final = 10
"""Reports of stalls that may come faster than stalls can happen, since what was held up arrives in one go."""


class AuthLink:
    """One worker's auth channel. Say `open` before anything else.

    Args:
        launch: What the worker is made of.
        launched: Its process.
        broker: Answers header requests.
        redactor: Cleans every text the worker sends.
        conversation: The worker's calls.
        signal: Makes its interpreter write where it is.
        on_stall: Told that its event loop does not turn, or does again.
        on_end: Called once when nothing more will come; with the error, if what came was refused.
    """

    def __init__(
        self,
        launch: Launch,
        launched: Launched,
        broker: Broker,
        redactor: Redactor,
        conversation: Conversation,
        *,
        signal: Callable[[], None],
        on_stall: Callable[[StallEvent], None],
        on_end: Callable[[FrameError | None], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_s = launch.limits.stall_s
        self._pid = launched.process.pid
        self._redactor = redactor
        self._conversation = conversation
        self._on_stall = on_stall
        self._on_end = on_end
        self._channel: Channel[AuthFromWorker] | None = None
        self._desk = broker.desk(conversation.scopes, launch.limits, self._send)
        self._began = self._loop.time()
        self._stalls = 0
        self._stalled: tuple[str, ...] = ()
        self.inspector = Inspector(self._send, signal, launched.dump, launch.boot.parent)
        desk = TrialDesk(launch.limits, launched.policy, launch.routes)
        self.trials = TrialLink(launched.trials, desk, conversation, self._send, on_end)

    async def open(self, sock: socket.socket) -> None:
        """Take over the channel's socket."""
        self._channel = await Channel.open(sock, auth_from_worker_decoder(), self._on_message, self._on_end)

    def close(self) -> None:
        """Answer nothing any more and let go of everything. Harmless twice."""
        self._desk.close()
        if self._channel is not None:
            self._channel.close()
        self.inspector.close()

    def _send(self, message: AuthToWorker) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _on_message(self, message: AuthFromWorker) -> None:
        match message:
            case HeaderRequest():
                self._on_header_request(message)
            case OpenTrial():
                self.trials.ask(message)
            case Inspected():
                self.inspector.answered(message)
            case Stalled():
                self._on_stalled(message)
            case Snapshot() if not self.inspector.asking:
                raise FrameError("a snapshot message out of turn")
            case _:
                self._conversation.on_message(message)

    def _on_header_request(self, request: HeaderRequest) -> None:
        if self._channel is not None and self._channel.unsent() > MAX_FRAME_BYTES:
            raise FrameError("answers to header requests are not read")
        self._desk.ask(request)

    def _on_stalled(self, message: Stalled) -> None:
        self._stalls += 1
        if self._stalls > SPARE_STALLS + 2 * (self._loop.time() - self._began) / self._stall_s:
            raise FrameError("more stalls than there was time for")
        if not message.over:
            # by its end the call may be over too
            self._stalled = self._conversation.in_flight(message.call, message.rollouts)
        clean = self._redactor.clean
        self._on_stall(
            StallEvent(
                pid=self._pid,
                rollout_ids=self._stalled,
                where=clean(message.where),
                stack=clean(message.stack),
                seconds=message.seconds,
                over=message.over,
                unreported=message.unreported,
            )
        )
