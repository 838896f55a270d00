"""An environment whose rollouts ask models as their examples say, with the credentials that their requests give them.

Its constructor and its dataset ask an embedding server first, where one is named.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openai

from benchmax.auth import InjectedAuth, ModelAuth, ModelRequestContext, create_async_openai_client
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

MESSAGES: Any = [{"role": "user", "content": "Which server is this?"}]


class Mediated(Environment[None, RolloutAttempt]):
    """Each example's id is what to do: a method's name and its arguments, with spaces between."""

    def __init__(self, acts: list[str], embed_url: str = "", score_url: str = "") -> None:
        self.acts = acts
        self.embed_url = embed_url
        self.score_url = score_url
        self.kept: dict[str, Any] = {}
        self.constructed: Any = None
        if embed_url:
            found: list[Any] = []
            context = contextvars.copy_context()
            thread = threading.Thread(target=lambda: found.append(context.run(asyncio.run, self._embed("constructor"))))
            thread.start()
            thread.join()
            (self.constructed,) = found

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        if self.embed_url:
            return Dataset([Example(f"say {self.constructed} {await self._embed('dataset')}", None)])
        return Dataset([Example(act, None) for act in self.acts])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        name, *arguments = request.example.id.split()
        try:
            found: Any = await getattr(self, name)(request, *arguments)
        except openai.APIStatusError as error:
            code = error.body.get("code") if isinstance(error.body, dict) else None
            found = [error.status_code, code, str(error)]
        except Exception as error:
            found = [type(error).__name__, str(error)]
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=json.dumps(found)
        )

    async def compute_group_rewards(
        self, rollouts: Sequence[RolloutAttempt]
    ) -> Mapping[str, Mapping[str, float]] | None:
        if self.score_url:
            await self._asked(self.score_url, InjectedAuth("judge"), "scoring")
        return None

    async def say(self, request: RolloutRequest[None], *words: str) -> Any:
        return list(words)

    async def ask(self, request: RolloutRequest[None], model: str = "") -> Any:
        """Ask the rollout's own model, or another one in its place."""
        client = self._client(request.base_url, request.model_auth, request.rollout_id, request.model)
        return await self._answer(client, model or request.model)

    async def judge(self, request: RolloutRequest[None], url: str = "") -> Any:
        """Ask a judge under the binding, at its URL or at the rollout's own model."""
        return await self._asked(url or request.base_url, InjectedAuth("judge"), "verdict")

    async def judge_in_a_stream(self, request: RolloutRequest[None], url: str) -> Any:
        """Ask for a stream, and say each time that a piece has come: the server sends no other before that."""
        pieces = []
        client = self._client(url, InjectedAuth("judge"), "verdict")
        async with client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            async for chunk in stream:
                pieces.append(chunk.choices[0].delta.content)
                await client.post("/seen", cast_to=object, body={"piece": pieces[-1]})
        return pieces

    async def judge_by_urllib(self, request: RolloutRequest[None], url: str) -> Any:
        """The same with what comes with Python, and its own idea of whom to trust."""
        return await self._urllib(request, url, ssl.create_default_context())

    async def judge_by_requests(self, request: RolloutRequest[None], url: str) -> Any:
        """The same as the library `requests` does it, which trusts what another variable names."""
        return await self._urllib(request, url, ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"]))

    async def judge_trusting_nobody(self, request: RolloutRequest[None], url: str) -> Any:
        return await self._urllib(request, url, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def hang_up(self, request: RolloutRequest[None], host: str, port: str, words: str = "") -> Any:
        """Connect, say something that is no TLS, or nothing, and go."""

        def talk() -> str:
            with socket.create_connection((host, int(port)), timeout=20) as connection:
                connection.sendall(words.encode())
                connection.shutdown(socket.SHUT_WR)
                return "reset" if connection.recv(1000) else "closed"

        return await asyncio.to_thread(talk)

    async def hang_on(self, request: RolloutRequest[None], host: str, port: str) -> Any:
        """Connect, say nothing, and wait."""

        def wait() -> str:
            with socket.create_connection((host, int(port)), timeout=20) as connection:
                return "answered" if connection.recv(1000) else "closed"

        return await asyncio.to_thread(wait)

    async def connect(self, request: RolloutRequest[None], host: str, port: str) -> Any:
        await asyncio.to_thread(socket.create_connection, (host, int(port)), 20)
        return "connected"

    async def keep(self, request: RolloutRequest[None], name: str) -> Any:
        """Keep what this rollout was given, for others to try."""
        self.kept[name] = request.base_url, await self._key(request.base_url, request.model_auth)
        return "kept"

    async def use_kept(self, request: RolloutRequest[None], name: str, where: str) -> Any:
        """Ask with another rollout's key, at its address or at this rollout's own."""
        url, key = self.kept[name]
        async with openai.AsyncOpenAI(
            base_url=url if where == "there" else request.base_url, api_key=key, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(model="m", messages=MESSAGES)
        return answer.choices[0].message.content

    async def pass_on(self, request: RolloutRequest[None]) -> Any:
        """Give a sibling this rollout's key, and use the sibling's at this rollout's own address, while both run."""
        mine = await self._key(request.base_url, request.model_auth)
        self.kept[request.rollout_id] = mine
        while len(self.kept) < 2:
            await asyncio.sleep(0.005)
        (other,) = (key for rollout_id, key in self.kept.items() if rollout_id != request.rollout_id)
        async with openai.AsyncOpenAI(base_url=request.base_url, api_key=other, max_retries=0) as client:
            try:
                return await client.chat.completions.create(model="m", messages=MESSAGES)
            finally:
                self.kept[f"{request.rollout_id} done"] = ""
                while len(self.kept) < 4:
                    await asyncio.sleep(0.005)

    async def judge_at_kept(self, request: RolloutRequest[None], name: str) -> Any:
        """Ask for a binding's headers at another rollout's address."""
        return await self._asked(self.kept[name][0], InjectedAuth("judge"), "verdict")

    async def own_headers(self, request: RolloutRequest[None]) -> Any:
        """Show what the rollout is given, as nobody looks for it."""
        return [request.base_url, (await self._key(request.base_url, request.model_auth))[::-1]]

    async def crash(self, request: RolloutRequest[None]) -> Any:
        os.kill(os.getpid(), 11)

    async def _key(self, url: str, auth: ModelAuth) -> str:
        headers = await auth.headers_for_request(ModelRequestContext(url, "m", "key"))
        return headers["Authorization"].removeprefix("Bearer ")

    def _client(self, url: str, auth: ModelAuth, label: str, model: str = "m") -> openai.AsyncOpenAI:
        return create_async_openai_client(model=model, base_url=url, auth=auth, request_id=label, max_retries=0)

    async def _asked(self, url: str, auth: ModelAuth, label: str) -> Any:
        return await self._answer(self._client(url, auth, label), "m")

    async def _answer(self, client: openai.AsyncOpenAI, model: str) -> Any:
        async with client:
            answer = await client.chat.completions.create(model=model, messages=MESSAGES)
        return answer.choices[0].message.content

    async def _embed(self, label: str) -> Any:
        return await self._asked(self.embed_url, InjectedAuth("embedding"), label)

    async def _urllib(self, request: RolloutRequest[None], url: str, context: ssl.SSLContext) -> Any:
        key = await self._key(url, InjectedAuth("judge"))
        asked = urllib.request.Request(
            f"{url}/chat/completions",
            json.dumps({"model": "m", "messages": MESSAGES}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
        )

        def fetch() -> Any:
            with urllib.request.urlopen(asked, timeout=20, context=context) as answer:
                return json.load(answer)["choices"][0]["message"]["content"]

        return await asyncio.to_thread(fetch)
