"""A sandbox for a process that has no runner: `python -m runner.trials DESCRIPTOR REQUEST`.

The descriptor is that of a connected stream socket, over which requests come; the second argument is a `TrialRequest`
as JSON. Its network, if it wants one, is the machine's. This program ends when the stream does, and the sandbox with
it; where there is none to be had it says why on standard error and ends with 3.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Sequence

from runner.limits import KIB, Limits
from runner.sandbox.policy import SandboxPolicy
from runner.trials.desk import TrialDesk, TrialRefusedError
from runner.trials.request import TrialRequest

PIECE: int = 256 * KIB
EXIT_REFUSED: int = 3


def main(arguments: Sequence[str]) -> int:
    """Open a sandbox and carry its stream on."""
    descriptor, request = arguments
    with socket.socket(fileno=int(descriptor)) as user:
        user.set_inheritable(False)
        user.setblocking(False)
        try:
            asyncio.run(_serve(user, TrialRequest(**json.loads(request))))
        except TrialRefusedError as error:
            print(f"{error}", file=sys.stderr)  # noqa: T201 - how a program says what went wrong
            return EXIT_REFUSED
    return 0


async def _serve(user: socket.socket, request: TrialRequest) -> None:
    desk = TrialDesk(Limits(), SandboxPolicy())
    try:
        with await desk.open(request) as sandbox:
            ways = [asyncio.create_task(_carry(user, sandbox)), asyncio.create_task(_carry(sandbox, user))]
            # the end of either is the end of the sandbox
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
    finally:
        await desk.aclose()


async def _carry(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(source, PIECE):
            await loop.sock_sendall(sink, data)
    except OSError:
        # how a stream ends whose other end is gone
        return


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
