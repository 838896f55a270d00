"""Runs one model's server until it is interrupted, for whoever needs it at a known address.

    python -m runner.models MODEL [--port P]

MODEL is `mock`, `mock:SCRIPT`, `local` or `embeddings`. The first line of standard output is the server's base URL and
its model's name; progress goes to standard error. The server listens on 127.0.0.1 and takes any credential.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import Final

from runner.errors import RunnerError
from runner.limits import Limits
from runner.models.choice import parse_model
from runner.models.server import serving, serving_embeddings
from runner.provision import Cache
from runner.record import Event, PhaseEvent

INTERRUPTED: Final = 130


def main() -> int:
    """Serve until SIGINT or SIGTERM.

    Returns:
        130 after a signal; 2 for a model that does not exist; 3 where the server cannot be had.
    """
    parser = argparse.ArgumentParser(prog="python -m runner.models", description="A model's server on loopback.")
    parser.add_argument("model", help="mock, mock:SCRIPT, local or embeddings")
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: a free one)")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.model, arguments.port))
    except asyncio.CancelledError:
        return INTERRUPTED
    except RunnerError as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 2 if error.fault == "usage" else 3
    return 0


async def _serve(name: str, port: int) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    cache, limits = Cache(), Limits()
    if name == "embeddings":
        server = serving_embeddings(cache=cache, limits=limits, port=port, on_event=_show)
    else:
        server = serving(parse_model(name, base_url=None), cache=cache, limits=limits, port=port, on_event=_show)
    async with server as announcement:
        sys.stdout.write(f"{announcement.base_url} {announcement.model}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _show(event: Event) -> None:
    if isinstance(event, PhaseEvent):
        sys.stderr.write(f"{event.message}\n")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port number, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
