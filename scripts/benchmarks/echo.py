"""The least that a header request can cost: the same two messages between two processes over a bare channel."""

from __future__ import annotations

import asyncio
import socket
import sys
import time

from runner.channel import Channel
from runner.errors import FrameError
from runner.protocol import (
    AuthFromWorker,
    AuthToWorker,
    HeaderRequest,
    Headers,
    auth_from_worker_decoder,
    auth_to_worker_decoder,
)

COUNT = 1000
HEADERS = {"Authorization": "Bearer a-token-that-is-not-used"}


async def raw_round_trip() -> float:
    """Seconds per round trip, one at a time."""
    ours, theirs = socket.socketpair()
    answerer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scripts.benchmarks.echo", str(theirs.fileno()), pass_fds=[theirs.fileno()]
    )
    theirs.close()
    answered: asyncio.Queue[AuthToWorker] = asyncio.Queue()
    channel = await Channel.open(ours, auth_to_worker_decoder(), answered.put_nowait, lambda _: None)
    began = 0.0
    for number in range(COUNT + 1):
        if number == 1:
            # the other process is there by then
            began = time.perf_counter()
        channel.send(
            HeaderRequest(
                request=number,
                call=1,
                binding=None,
                rollout="0-0",
                base_url="http://127.0.0.1:9/v1",
                model="m",
                rollout_id="0-0",
            )
        )
        await answered.get()
    seconds = (time.perf_counter() - began) / COUNT
    channel.close()
    await answerer.wait()
    return seconds


async def answer(descriptor: int) -> None:
    """Answer every request until the other end is closed."""
    over = asyncio.Event()
    channel: Channel[AuthFromWorker]

    def on_request(request: AuthFromWorker) -> None:
        assert isinstance(request, HeaderRequest)
        channel.send(Headers(request=request.request, headers=HEADERS))

    def on_end(error: FrameError | None) -> None:
        over.set()

    sock = socket.socket(fileno=descriptor)
    channel = await Channel.open(sock, auth_from_worker_decoder(), on_request, on_end)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(answer(int(sys.argv[1])))
