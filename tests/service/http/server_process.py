"""A server as a program: settings from the environment, a listening socket by number, its URL on standard output."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from runner.service.configuration import read_settings
from runner.service.http.request_log import log_to
from runner.service.http.serving import serve
from runner.service.http.state import ServiceState
from runner.service.settings import Settings


async def run(settings: Settings, listening: socket.socket) -> None:
    state = await ServiceState.open(settings)
    try:
        await serve(state, listening=listening, ready=lambda url: print(url, flush=True))
    finally:
        await state.aclose()


if __name__ == "__main__":
    log_to(sys.stderr)
    asyncio.run(run(read_settings(None, os.environ), socket.socket(fileno=int(sys.argv[1]))))
