"""Starts a model server as a real process and waits for its announcement."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai

from runner.models import Announcement, ServerCommand, read_announcement

PLACEHOLDER_KEY = "not-a-key"


@dataclass(frozen=True)
class RunningModel:
    """A server that accepts connections."""

    process: subprocess.Popen[bytes]
    announcement: Announcement

    @property
    def base_url(self) -> str:
        return self.announcement.base_url

    @property
    def port(self) -> int:
        return int(self.base_url.removesuffix("/v1").rpartition(":")[2])

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.base_url, api_key=PLACEHOLDER_KEY, max_retries=0)


@contextmanager
def running(command: ServerCommand, log: Path) -> Iterator[RunningModel]:
    """Start the command in an environment of nothing but its own variables; end it on the way out."""
    readable, writable = os.pipe()
    with log.open("wb") as stderr, os.fdopen(readable, "rb") as announcements:
        process = subprocess.Popen(
            command.argv(writable),
            pass_fds=[writable],
            env=dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        os.close(writable)
        try:
            # reading to the end also shows that the server closed its descriptor
            yield RunningModel(process, read_announcement(announcements.read()))
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
