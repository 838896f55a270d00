"""`benchmax submit`: an artifact judged by a service, followed and shown as `benchmax validate` does it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from runner.cli.console import results, say, write_json
from runner.cli.credentials import variable
from runner.cli.interrupt import run_interruptible
from runner.cli.parcel import Parcel
from runner.cli.progress import Progress
from runner.cli.run import check_writable, write_views
from runner.errors import RunnerError, UsageError
from runner.record import LogLine, OutputEvent, PhaseEvent
from runner.service.client import ClientError, ServiceClient
from runner.service.client.wire import Event, NewValidation, Validation, ValidationOptions
from runner.text import one_line
from runner.validation import Verdict
from runner.validation.table import show

CANCEL_S: Final = 10.0
"""For how long it is tried to cancel a validation whose submitter wants to leave."""


def execute(arguments: argparse.Namespace) -> int:
    """Submit what the arguments say, or follow what was submitted."""
    _check(arguments)
    for option, path in (("--json-out", arguments.json_out), ("--report", arguments.report)):
        if path is not None:
            check_writable(path, option)
    url = arguments.server or os.environ.get("BENCHMAX_SERVER", "")
    if not url.strip():
        raise UsageError("no service was named.", hint="Give --server URL, or set BENCHMAX_SERVER.")
    key = variable(arguments.key_env, "--key-env").strip()
    parcel = None if arguments.attach is not None else Parcel.of(arguments.dir, arguments.data, name=arguments.name)
    options = _options(arguments)
    with Progress() as progress:
        client = ServiceClient(url, key, on_trouble=progress.note)
        _warn_of_plain_text(client.url)
        if parcel is not None and parcel.hidden:
            progress.note(f"left out of the data: {parcel.hidden} hidden files or folders")
        submission = Submission(client, progress)
        validation, verdict, page = run_interruptible(
            submission.run(
                parcel, options, attach=arguments.attach, follow=not arguments.detach, page=arguments.report is not None
            ),
            tell=progress.note,
            leave=progress.abandon,
        )
    if verdict is None:
        return _show_detached(validation, client.url, arguments)
    return _show(verdict, page, validation, arguments)


class Submission:
    """One submission under way.

    Args:
        client: The service's.
        progress: Shows how far it is.
    """

    def __init__(self, client: ServiceClient, progress: Progress) -> None:
        self._client = client
        self._progress = progress

    async def run(
        self, parcel: Parcel | None, options: ValidationOptions, *, attach: str | None, follow: bool, page: bool
    ) -> tuple[Validation, Verdict | None, bytes]:
        """Submit and follow.

        Args:
            parcel: What to upload; `None` where it was.
            options: How it is to be judged.
            attach: The validation to follow, in place of a new one.
            follow: Whether to wait for the verdict.
            page: Whether the verdict is wanted as a page, too.

        Returns:
            The validation; its verdict and page, as far as they are wanted.

        Raises:
            RunnerError: there is no verdict.
        """
        async with self._client:
            if parcel is None:
                assert attach is not None
                # whoever looks on has not begun it, and does not end it
                validation = await self._client.validation(attach)
                await self._follow(validation.id)
            else:
                # a key that is not good, or a service that is not there, is found out before anything is sent
                await self._client.me()
                new = await parcel.upload(self._client, options, self._tell)
                validation = await self._submit(new)
                self._tell("queue", f"{validation.id} is waiting for an executor")
                if not follow:
                    return validation, None, b""
                async with self._cancelling(validation.id):
                    await self._follow(validation.id)
            validation = await self._client.validation(validation.id)
            if validation.state == "cancelled":
                raise RunnerError(f"{validation.id} was cancelled.", hint="Submit it again.")
            if validation.state != "done":
                raise RunnerError(f"the service could not judge it: {one_line(validation.error, 1000)}")
            verdict = await self._client.verdict(validation.id)
            return validation, verdict, await self._client.report(validation.id) if page else b""

    async def _submit(self, new: NewValidation) -> Validation:
        """Begin a validation; one that was begun while whoever wants it leaves is cancelled."""
        asked = asyncio.create_task(self._client.submit(new))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            with contextlib.suppress(ClientError):
                await self._cancel((await asked).id)
            raise

    @contextlib.asynccontextmanager
    async def _cancelling(self, validation_id: str) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self._cancel(validation_id)
            raise

    async def _cancel(self, validation_id: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._client.cancel(validation_id)
        except (ClientError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            self._progress.note(f"{validation_id} could not be cancelled and goes on: {why}")
        else:
            self._progress.note(f"{validation_id} is cancelled")

    async def _follow(self, validation_id: str) -> None:
        async for event in self._client.events(validation_id):
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        data = event.data
        if event.kind == "phase":
            self._tell(str(data.get("phase", "")), str(data.get("text", "")))
        elif event.kind == "log" and "rollout_id" not in data:
            level = data.get("level")
            line = LogLine(
                stream="log",
                level=level if isinstance(level, int) else 0,
                logger=str(data.get("logger", "")),
                text=str(data.get("text", "")),
            )
            self._progress.on_event(OutputEvent(line=line))

    def _tell(self, phase: str, text: str) -> None:
        self._progress.on_event(PhaseEvent(phase=phase, message=text, elapsed_s=0.0))


def _check(arguments: argparse.Namespace) -> None:
    if arguments.attach is None:
        if arguments.dir is None:
            raise UsageError("one of these is required: DIR or --attach ID.", hint="See `benchmax submit --help`.")
        if not arguments.detach:
            return
        for option, value in (("--json-out", arguments.json_out), ("--report", arguments.report)):
            if value is not None:
                raise UsageError(f"{option} has no use with --detach: there is no verdict yet.", hint="Leave one out.")
        return
    given = {"DIR": arguments.dir, "--data": arguments.data, "--name": arguments.name, "--detach": arguments.detach}
    given |= {"--model": arguments.model, "--split": arguments.split, "--timeout": arguments.timeout}
    given |= {"--max-context-tokens": arguments.max_context_tokens}
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} has no use with --attach: it is submitted already.", hint="Leave one out.")


def _options(arguments: argparse.Namespace) -> ValidationOptions:
    given = {name: getattr(arguments, name) for name in ("model", "max_context_tokens")}
    try:
        return ValidationOptions(split=arguments.split or "eval", timeout_s=arguments.timeout, **given)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).removesuffix("_s").replace("_", "-")
        raise UsageError(f"--{option}: {first['msg'][0].lower()}{first['msg'][1:]}.") from None


def _warn_of_plain_text(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        say(f"warning: the key goes to {parts.netloc} unencrypted; use https where others can listen")


def _show_detached(validation: Validation, url: str, arguments: argparse.Namespace) -> int:
    console = results(json=arguments.json)
    console.print(validation.id, soft_wrap=True)
    if arguments.json:
        write_json(json.dumps({"format": 1, "id": validation.id, "server": url}, indent=1).encode() + b"\n")
    say(f"`benchmax submit --server {url} --attach {validation.id}` shows the verdict")
    return 0


def _show(verdict: Verdict, page: bytes, validation: Validation, arguments: argparse.Namespace) -> int:
    data = verdict.to_json()
    files: dict[Path, Callable[[], bytes]] = {}
    if arguments.json_out is not None:
        files[arguments.json_out] = lambda: data
    if arguments.report is not None:
        files[arguments.report] = lambda: page
    # before anything is shown, since whoever reads that may be gone
    unwritten = write_views(files)
    table = results(json=arguments.json)
    show(verdict, table)
    if arguments.json:
        write_json(data)
    if unwritten is not None:
        unwritten.hint = "The verdict is shown above."
        raise unwritten
    for path in files:
        table.print(f"verdict: {path}", soft_wrap=True)
    table.print(f"validation: {validation.id}", soft_wrap=True)
    return verdict.exit_code
