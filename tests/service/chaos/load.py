"""Clients of a site: they submit, watch until the end, and go on whatever happens to the server meanwhile.

Run as a program, with what `Load.run` needs as JSON, it does so from where it runs and prints what it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

import httpx

from runner.artifact import METADATA_NAME, PICKLE_NAME
from runner.errors import ClientError
from runner.service.client import ServiceClient
from runner.service.client.wire import ArtifactUploads, DataFile, NewValidation

PAUSE_S = 0.3
PATIENCE_S = 120.0
"""For one step of a client, over all its tries."""

BATCH = "batch"


@dataclass
class Load:
    """See the module.

    Args:
        url: The server's.
        key: An API key.
        artifacts: Name to folder of what is submitted in turn, and in between as a batch; jobs are named
            `<name>-<number>`.
        jobs: How many at least.
        seconds: For how long at least.
        clients: How many at the same time.
    """

    url: str
    key: str
    artifacts: dict[str, str]
    jobs: int
    seconds: float = 0.0
    clients: int = 6
    watched: set[str] = field(default_factory=set)
    troubles: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Do everything; returns when all that was submitted is over.

        Raises:
            AssertionError: a stream of events has a gap, a repetition, or something after its end.
        """
        until = time.monotonic() + self.seconds
        kinds = [*self.artifacts, BATCH]
        numbers = count()

        async def client_of(client: ServiceClient) -> None:
            while (number := next(numbers)) < self.jobs or time.monotonic() < until:
                kind = kinds[number % len(kinds)]
                if kind == BATCH:
                    await self._batch(client, f"{BATCH}-{number}")
                else:
                    await self._validation(client, Path(self.artifacts[kind]), f"{kind}-{number}")

        async with (
            ServiceClient(self.url, self.key, on_trouble=self._count) as client,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(self.clients):
                group.create_task(client_of(client))

    async def _validation(self, client: ServiceClient, folder: Path, title: str) -> None:
        uploads = await self._artifact(client, folder, title)
        rows = [{"question": f"What is {n} * 7?", "answer": n * 7, "of": title} for n in range(3, 9)]
        # no two have the same content, so that none of their blobs can be another's
        lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        data = await self._sent(client, f"{title}/eval.jsonl", lines)
        new = NewValidation(
            name=title,
            artifact=ArtifactUploads(pickle=uploads[PICKLE_NAME], metadata=uploads[METADATA_NAME]),
            files=[DataFile(path="eval.jsonl", upload=data)],
        )
        validation_id = await self._submitted(client, new)
        seen = [event async for event in client.events(validation_id)]
        assert [event.seq for event in seen] == [*range(1, len(seen) + 1)], (title, seen)
        assert [event.kind for event in seen].index("end") == len(seen) - 1, (title, seen)
        self.watched.add(validation_id)

    async def _artifact(self, client: ServiceClient, folder: Path, title: str) -> dict[str, str]:
        names = (PICKLE_NAME, METADATA_NAME)
        return {name: await self._sent(client, f"{title}/{name}", (folder / name).read_bytes()) for name in names}

    async def _sent(self, client: ServiceClient, path: str, content: bytes) -> str:
        return await self._tried(lambda: client.upload(path, content))

    async def _submitted(self, client: ServiceClient, new: NewValidation) -> str:
        """Submit; when the answer is lost, look whether it has begun."""

        async def attempt() -> str:
            found = await client.validations(query=new.name)
            for one in found.items:
                if one.name == new.name:
                    return one.id
            return (await client.submit(new)).id

        return await self._tried(attempt)

    async def _batch(self, client: ServiceClient, title: str) -> None:
        """Ask for a batch as the published client does; a stream that breaks is not asked for again."""
        await self._artifact(client, Path(next(iter(self.artifacts.values()))), title)
        body = {
            "env": {"env_cls_path": f"{title}/{PICKLE_NAME}", "env_metadata_path": f"{title}/{METADATA_NAME}"},
            "model": {"name": "mock-model"},
            "max_context_tokens": 2048,
        }
        headers = {"Authorization": f"Bearer {self.key}"}
        address = f"{self.url}/v1/rollout/batch/stream"
        with contextlib.suppress(httpx.HTTPError):
            async with (
                httpx.AsyncClient(timeout=60) as http,
                http.stream("POST", address, json=body, headers=headers) as answer,
            ):
                async for _ in answer.aiter_lines():
                    pass

    async def _tried(self, step: Callable[[], Awaitable[str]]) -> str:
        """Do a step until it is done: of a service that is killed all errors of passing are to be expected."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await step()
                except ClientError as error:
                    if not error.passing:
                        raise
                    self._count(str(error))
                    await asyncio.sleep(PAUSE_S)

    def _count(self, text: str) -> None:
        self.troubles[text[:60]] += 1

    def seen(self) -> str:
        """Return what was seen, in words."""
        troubles = ", ".join(f"{often} x {text!r}" for text, often in self.troubles.most_common(5))
        return f"{len(self.watched)} validations watched to their end in spite of {troubles or 'nothing'}"


def main() -> None:
    load = Load(**json.loads(sys.stdin.read()))
    asyncio.run(load.run())
    print(load.seen())


def given(load: Load) -> dict[str, object]:
    """Return what the program wants."""
    return {name: value for name, value in asdict(load).items() if name not in ("watched", "troubles")}


if __name__ == "__main__":
    main()
