"""An environment after credentials that it was not meant to have, or meant to keep to itself."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import logging
import os
import struct
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmax.auth import InjectedAuth, ModelRequestContext
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

ACTS = ["forge", "flood", "leak", "leak-and-raise", "outstay", "hold"]
AUTH = 4


class Borrowing(Environment[str, RolloutAttempt]):
    def __init__(self, judge_url: str, flood: int = 0) -> None:
        self.judge_url = judge_url
        self.flood_size = flood
        self.base_dir = Path()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        self.base_dir = base_dir
        return Dataset([Example(act, act) for act in ACTS])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        act = getattr(self, request.example.payload.replace("-", "_"))
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=await act(request)
        )

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, Any] | None:
        if any(rollout.error == "judge me" for rollout in rollouts):
            await InjectedAuth("judge").headers_for_request(ModelRequestContext(self.judge_url, "judge", "scoring"))
        return None

    async def forge(self, request: Any) -> str:
        """Ask for everything in everybody's name, past the objects that were given; say what came of it."""
        auth: Any = request.model_auth
        client, call = auth._client, auth._call
        own = {"call": call, "binding": None, "rollout": request.rollout_id}
        here = (request.base_url, request.model, request.rollout_id)
        judge = {"call": call, "binding": "judge", "rollout": None}
        attempts: dict[str, tuple[tuple[str, str, str], dict[str, Any]]] = {
            "own": (here, own),
            "own in another's name": ((*here[:2], "somebody-else"), own),
            "elsewhere": (("https://evil.example/v1", *here[1:]), own),
            "another model": ((request.base_url, "a-dearer-model", request.rollout_id), own),
            "another's": (here, {**own, "rollout": "somebody-else"}),
            "nobody's": (here, {**own, "rollout": None}),
            "another call": (here, {**own, "call": call + 1}),
            "an earlier call": (here, {**own, "call": 0}),
            "the judge's": ((self.judge_url, "judge", "label"), judge),
            "the judge's, elsewhere": (("https://evil.example/v1", "judge", "label"), judge),
            "the judge's, behind a user": (("https://judge.example@evil.example/v1", "judge", "label"), judge),
            "the judge's, above": ((f"{self.judge_url}/../admin", "judge", "label"), judge),
            "the judge's, in the rollout's name": ((self.judge_url, "judge", "label"), own),
            "a stranger's": ((self.judge_url, "judge", "label"), {**judge, "binding": "stranger"}),
        }
        found = {}
        for name, (context, names) in attempts.items():
            try:
                headers = await client.headers(ModelRequestContext(*context), **names)
                found[name] = f"answered {sorted(headers)}"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
        return json.dumps(found)

    async def flood(self, request: Any) -> None:
        """Write ever so many requests straight to the channel, and read no answer."""
        call = request.model_auth._call
        frames = bytearray()
        for number in range(self.flood_size):
            body = msgspec.msgpack.encode(
                {
                    "op": "header-request", "request": 10**9 + number, "call": call, "binding": None,
                    "rollout": request.rollout_id, "base_url": request.base_url, "model": request.model,
                    "rollout_id": request.rollout_id,
                }
            )  # fmt: skip
            frames += struct.pack(">I", len(body)) + body

        def write() -> None:
            view = memoryview(frames)
            while view:
                view = view[os.write(AUTH, view) :]

        await asyncio.to_thread(write)

    async def leak(self, request: Any) -> str:
        """Say the token in every way that code does by accident."""
        headers = await copy.deepcopy(request).model_auth.headers_for_request(
            ModelRequestContext(request.base_url, request.model, request.rollout_id)
        )
        token = headers["Authorization"].removeprefix("Bearer ")
        logging.getLogger().setLevel(logging.DEBUG)
        logging.getLogger("http").debug("> %r", headers)
        logging.getLogger(f"client.{token}").warning("%s", json.dumps(dict(headers)))
        try:
            raise ConnectionError(f"POST {request.base_url} {list(headers.items())} failed")
        except ConnectionError:
            logging.getLogger("http").exception("request failed")
        print("token in two writes:", token[:15], end="")
        print(token[15:])
        print("token on two lines:", token[:15])
        print(token[15:])
        print("x" * 8180 + token + "y" * 20_000)
        print("y" * 20_000 + token + "x" * 8180)
        print(f"https://judge.example/?key={urllib.parse.quote(token, safe='')}&x=1", token.encode())
        os.write(1, f"raw {headers}\n".encode())
        user = base64.b64decode(headers["Proxy-Authorization"].removeprefix("Basic ")).decode()
        print("user and password:", user, headers["X-Api-Key"], headers["Content-Type"])
        return f"the token is {token}"

    async def leak_and_raise(self, request: Any) -> str:
        raise PermissionError(f"refused: {await self.leak(request)}")

    async def outstay(self, request: Any) -> str:
        """The first one stays beyond its time and asks then; the other one is done and will be judged."""
        if not request.rollout_id.endswith("-0"):
            return "judge me"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            (self.base_dir / "out-of-time").touch()
            for _ in range(2):
                try:
                    await request.model_auth.headers_for_request(
                        ModelRequestContext(request.base_url, request.model, request.rollout_id)
                    )
                except Exception as error:
                    print("asked too late:", error)
            raise
        return ""

    async def hold(self, request: Any) -> str:
        """Ask, and wait for the answer for as long as it takes."""
        await request.model_auth.headers_for_request(
            ModelRequestContext(request.base_url, request.model, request.rollout_id)
        )
        return "answered"
