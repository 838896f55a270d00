"""Running a model's server beside a run: started, awaited, and ended with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from benchmax.auth import ModelAuth, ModelRequestContext
from runner.environ import SYSTEM_PATH, network_environment
from runner.errors import EndpointError
from runner.limits import Limits
from runner.models.choice import ModelChoice
from runner.models.command import (
    EMBEDDING_REQUIREMENTS,
    LOCAL_FOLLOW_DEPENDENCIES,
    LOCAL_REQUIREMENTS,
    MAX_ANNOUNCEMENT_BYTES,
    Announcement,
    ServerCommand,
    embedding_command,
    local_command,
    mock_command,
    read_announcement,
)
from runner.process import OutputTail, Process
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, provision_packages
from runner.record import OnEvent, PhaseEvent
from runner.sandbox.policy import SandboxPolicy

START_S: Final = 120.0
"""From starting a server to its announcement; a model of a few hundred megabytes loads in seconds."""

PROBE_S: Final = 10.0
"""How long an endpoint may take to answer the first probe."""

ANNOUNCE_FD: Final = 3
LOG_BYTES: Final = 64 * 1024
"""Kept of what a server writes to its standard error."""


@contextlib.asynccontextmanager
async def serving(
    choice: ModelChoice,
    *,
    cache: Cache,
    limits: Limits,
    port: int = 0,
    provisioning: ProvisionOptions | None = None,
    model_auth: ModelAuth | None = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[Announcement]:
    """Make a model available for the length of the context; say where.

    Args:
        choice: Which model. A running endpoint is only probed.
        cache: Where the local model's venv is kept.
        limits: For the local model's installation.
        port: The port for the server; 0 takes a free one.
        provisioning: How the local model's packages are looked for; what only a bundle's are chosen by has no part.
        model_auth: What an endpoint's probe authorises itself with.
        on_event: Told about phases.

    Raises:
        EndpointError: the server could not start, or the endpoint does not answer.
        ProvisionError: the local model's venv could not be made.
    """
    if choice.kind == "endpoint":
        assert choice.base_url is not None
        await probe(choice.base_url, choice.model, model_auth)
        yield Announcement(base_url=choice.base_url, model=choice.model)
        return
    tell = _teller(on_event)
    if choice.kind == "local":
        python = await _venv(LOCAL_REQUIREMENTS, cache, limits, provisioning, tell)
        command = local_command(python, model=choice.model, port=port)
    else:
        command = mock_command(choice.script, port=port)
    async with _running(command, tell) as announcement:
        yield announcement


@contextlib.asynccontextmanager
async def serving_embeddings(
    *,
    cache: Cache,
    limits: Limits,
    port: int = 0,
    provisioning: ProvisionOptions | None = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[Announcement]:
    """Make the embedding model available for the length of the context; say where.

    Args:
        cache: Where its venv is kept.
        limits: For its installation.
        port: The port for the server; 0 takes a free one.
        provisioning: How its packages are looked for; what only a bundle's are chosen by has no part.
        on_event: Told about phases.

    Raises:
        EndpointError: the server could not start.
        ProvisionError: its venv could not be made.
    """
    tell = _teller(on_event)
    python = await _venv(EMBEDDING_REQUIREMENTS, cache, limits, provisioning, tell)
    async with _running(embedding_command(python, port=port), tell) as announcement:
        yield announcement


def _teller(on_event: OnEvent | None) -> Callable[[str], None]:
    began = time.monotonic()

    def tell(message: str) -> None:
        if on_event is not None:
            on_event(PhaseEvent(phase="model", message=message, elapsed_s=time.monotonic() - began))

    return tell


async def _venv(
    requirements: Sequence[str],
    cache: Cache,
    limits: Limits,
    provisioning: ProvisionOptions | None,
    tell: Callable[[str], None],
) -> Path:
    """Return the interpreter of a venv with a model's packages."""

    def on_provision(event: ProvisionEvent) -> None:
        tell(event.message)

    venv = await provision_packages(
        requirements,
        follow_dependencies=LOCAL_FOLLOW_DEPENDENCIES,
        cache=cache,
        options=(provisioning or ProvisionOptions()).for_tools(),
        limits=limits,
        on_event=on_provision,
    )
    return venv.python


async def probe(base_url: str, model: str, auth: ModelAuth | None) -> None:
    """Check that something answers HTTP at a base URL; what it answers does not matter.

    Raises:
        EndpointError: nothing does.
    """
    # heavy, and only wanted for somebody else's endpoint
    import httpx

    headers = {} if auth is None else await auth.headers_for_request(ModelRequestContext(base_url, model, "probe"))
    try:
        async with httpx.AsyncClient(timeout=PROBE_S) as client:
            await client.get(f"{base_url.rstrip('/')}/models", headers=dict(headers))
    except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise EndpointError(
            f"the model endpoint {base_url} does not answer: {type(error).__name__} {error}".rstrip() + ".",
            hint="Check --base-url, and that the server is running and reachable from here.",
        ) from error


@contextlib.asynccontextmanager
async def _running(command: ServerCommand, tell: Callable[[str], None]) -> AsyncIterator[Announcement]:
    tell(f"starting the server of {command.model}")
    log = OutputTail(LOG_BYTES)
    with tempfile.TemporaryDirectory(prefix="benchmax-model-") as folder:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            process = await Process.start(
                command.argv(ANNOUNCE_FD),
                env={
                    **network_environment(),
                    "PATH": SYSTEM_PATH,
                    "HOME": folder,
                    "TMPDIR": folder,
                    "LANG": "C.UTF-8",
                    **command.env,
                },
                cwd=Path(folder),
                policy=SandboxPolicy(),
                descriptors={ANNOUNCE_FD: write},
                stderr=log.write,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        try:
            announcement = await _announcement(read, command, log)
            tell(f"{announcement.model} answers")
            yield announcement
        finally:
            await process.end()


async def _announcement(descriptor: int, command: ServerCommand, log: OutputTail) -> Announcement:
    reader = asyncio.StreamReader(limit=MAX_ANNOUNCEMENT_BYTES)
    with os.fdopen(descriptor, "rb") as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            async with asyncio.timeout(START_S):
                line = await reader.read(MAX_ANNOUNCEMENT_BYTES + 1)
        except TimeoutError:
            raise EndpointError(
                f"the server of {command.model} was not ready after {START_S:g} s.", detail=log.text()
            ) from None
        finally:
            transport.close()
    try:
        return read_announcement(line)
    except EndpointError as error:
        last = " | ".join(log.last_lines(3))
        raise EndpointError(
            f"{error.message} Last output: {last}" if last else error.message, detail=log.text()
        ) from error
