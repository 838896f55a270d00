"""An environment whose rollouts make the connections that their examples name, and say what came of them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import urllib.request
from pathlib import Path
from typing import Any

import openai

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Calling(Environment[None, RolloutAttempt]):
    """Each example's id is what to do: a method's name and its arguments, with spaces between."""

    def __init__(self, acts: list[str]) -> None:
        self.acts = acts

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example(act, None) for act in self.acts])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        name, *arguments = request.example.id.split()
        try:
            found: Any = await getattr(self, name)(request, *arguments)
        except (OSError, openai.APIConnectionError) as error:
            found = [type(error).__name__, str(error)]
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=json.dumps(found)
        )

    async def ask(self, request: RolloutRequest[None], base_url: str = "") -> Any:
        """Ask a model as any program would."""
        async with openai.AsyncOpenAI(base_url=base_url or request.base_url, api_key="k", max_retries=0) as client:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Which server is this?"}]
            )
        return answer.choices[0].message.content

    async def stream(self, request: RolloutRequest[None]) -> Any:
        """Ask for a stream, and say each time that a piece has come: the server sends no other before that."""
        pieces = []
        async with openai.AsyncOpenAI(base_url=request.base_url, api_key="k", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Count."}], stream=True
            )
            async for chunk in stream:
                pieces.append(chunk.choices[0].delta.content)
                await client.post("/seen", cast_to=object, body={"piece": pieces[-1]})
        return pieces

    async def connect(self, request: RolloutRequest[None], host: str, port: str) -> Any:
        """Connect, and return what comes."""

        def talk() -> str:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(b"hello")
                connection.shutdown(socket.SHUT_WR)
                said = b""
                while piece := connection.recv(65536):
                    said += piece
                return said.decode()

        return await asyncio.to_thread(talk)

    async def fetch(self, request: RolloutRequest[None], url: str) -> Any:
        """Fetch something with a client that takes the proxies that it finds."""

        def fetch() -> str:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text: str = answer.read().decode()
                return text

        return await asyncio.to_thread(fetch)

    async def variable(self, request: RolloutRequest[None], name: str) -> Any:
        """Show a variable wherever it can be shown."""
        value = os.environ[name]
        print("printed:", value)
        os.write(2, f"written: {value}\n".encode())
        return {"length": len(value), "value": value, "backwards": value[::-1]}

    async def crash(self, request: RolloutRequest[None]) -> Any:
        """End as broken machine code does, with a connection that is open."""
        os.kill(os.getpid(), 11)
