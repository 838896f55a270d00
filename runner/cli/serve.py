"""`benchmax serve`: the validation service on this machine, its HTTP server and its executors."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shlex
import socket
import sys
from dataclasses import replace
from urllib.parse import urlsplit

from runner.cli.console import results, write_json
from runner.cli.service_settings import settings_of
from runner.errors import RunnerError
from runner.service.blobs.store import StoreUnavailableError
from runner.service.database import keys
from runner.service.executor import Confinement, Supervisor, confinement
from runner.service.executor.folder import work_folder
from runner.service.housekeeping import keep_house
from runner.service.http.request_log import log_to
from runner.service.http.serving import serve
from runner.service.http.state import ServiceState
from runner.service.settings import Settings
from runner.text import one_line

BACKLOG = 1024
SUPERVISOR = "benchmax.server"
"""The logger of what keeps the executors running."""


def execute(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    settings = settings_of(arguments)
    with listen(settings.server.host, settings.server.port) as listening:
        # clients are told URLs, so the port that was taken has to be known
        settings = replace(settings, server=replace(settings.server, port=listening.getsockname()[1]))
        confined = _confinement(settings) if settings.executors.count else None
        sandbox = "" if confined is None else f", sandbox {confined.sandbox} (network {confined.network})"
        handler = log_to(sys.stderr)
        others = logging.getLogger(SUPERVISOR)
        others.addHandler(handler)
        others.setLevel(logging.INFO)
        try:
            asyncio.run(_serve(settings, listening, sandbox, arguments))
        except StoreUnavailableError as error:
            raise RunnerError(f"the blob store cannot be used: {error}.", hint="Check --blobs.") from error
    return 0


def _confinement(settings: Settings) -> Confinement:
    # there, so that nothing of it stays where this process is killed meanwhile
    with work_folder(settings.server.data / "executors"):
        return confinement(settings)


async def _serve(settings: Settings, listening: socket.socket, sandbox: str, arguments: argparse.Namespace) -> None:
    state = await ServiceState.open(settings)
    try:
        made = await state.database.read(keys.list_all)

        def ready(_: str) -> None:
            _show(settings, len(made), sandbox, arguments)

        house = asyncio.create_task(keep_house(state))
        try:
            async with Supervisor(settings, settings.executors.count):
                await serve(state, listening=listening, ready=ready)
        finally:
            house.cancel()
            await asyncio.wait([house])
    finally:
        await state.aclose()


def _show(settings: Settings, made: int, sandbox: str, arguments: argparse.Namespace) -> None:
    count = settings.executors.count
    executors = f"{count} executor{'' if count == 1 else 's'}{sandbox}, model {one_line(settings.model.name)}"
    create = f"benchmax keys create NAME{_same(arguments)}"
    lines = [
        f"benchmax serves {settings.public_url}",
        f"  runs    {executors}",
        f"  data    {settings.server.data}",
        f"  key     {create}",
        f"  submit  BENCHMAX_KEY=… benchmax submit DIR --server {settings.public_url}",
    ]
    if not made:
        lines.append(f"There is no key yet, so nobody can use it: export BENCHMAX_KEY=$({create})")
    console = results(json=arguments.json)
    for line in lines:
        console.print(line, soft_wrap=True)
    if arguments.json:
        facts = {"format": 1, "url": settings.public_url, "executors": count, "keys": made, "pid": os.getpid()}
        write_json(json.dumps(facts).encode() + b"\n")


def _same(arguments: argparse.Namespace) -> str:
    """Return the options with which another command finds the same database."""
    given = {"--config": arguments.config, "--data": arguments.data, "--database": arguments.database}
    text = ""
    for option, value in given.items():
        if value is not None:
            hidden = urlsplit(str(value)).password is not None
            text += f" {option} {'…' if hidden else shlex.quote(str(value))}"
    return text


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address.

    Raises:
        RunnerError: it cannot be had.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        try:
            # what waits for the last connections of a former server does not keep the next one from starting
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise RunnerError(
            f"cannot listen at {shown}: {error.strerror}.",
            hint="Choose another --port or --host; another `benchmax serve` may run here.",
        ) from error
    return listening
