"""An environment whose rollouts do one odd thing each, named by the example: what a worker has to survive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.auth import InjectedAuth, ModelRequestContext, create_openai_client
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

ACTS = [
    "ok", "print", "raw", "input", "sleep", "block", "swallow", "exit", "touch-and-wait", "sync-client", "own-loop",
    "environ", "files", "other-url", "unbound", "late", "score-forever", "grandchild", "odd-rewards", "secret-text",
    "segfault", "system-exit", "clean-up", "reconfigure",
]  # fmt: skip


class Probing(Environment[dict[str, Any], RolloutAttempt]):
    def __init__(self, judge_url: str = "http://127.0.0.1:9/v1") -> None:
        self.judge_url = judge_url
        self.base_dir = Path()
        self.stash: Any = None

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        self.base_dir = Path(base_dir)
        return Dataset([Example(act, {"act": act}) for act in ACTS][:max_examples])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> RolloutAttempt:
        act = request.example.payload["act"]
        note, rewards = await getattr(self, act.replace("-", "_"))(request)
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards=rewards or {"x": 1.0}, error=note
        )

    async def compute_group_rewards(
        self, rollouts: Sequence[RolloutAttempt]
    ) -> Mapping[str, Mapping[str, float]] | None:
        if any(rollout.error == "score forever" for rollout in rollouts):
            await asyncio.sleep(3600)
        return None

    async def ok(self, request: Any) -> Any:
        return None, None

    async def print(self, request: Any) -> Any:
        print("printed by", request.rollout_id)
        print("to stderr", file=sys.stderr)
        return None, None

    async def raw(self, request: Any) -> Any:
        os.write(1, b"\x00\xff raw bytes on descriptor 1\n")
        subprocess.run(["/bin/sh", "-c", "echo from a program"], check=True)
        return None, None

    async def input(self, request: Any) -> Any:
        try:
            input("a question nobody answers ")
        except EOFError:
            return "end of file", None
        return "an answer", None

    async def sleep(self, request: Any) -> Any:
        await asyncio.sleep(3600)
        return None, None

    async def block(self, request: Any) -> Any:
        (self.base_dir / f"blocking-{request.rollout_id}").touch()
        time.sleep(3600)
        return None, None

    async def swallow(self, request: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def exit(self, request: Any) -> Any:
        os._exit(3)

    async def system_exit(self, request: Any) -> Any:
        await asyncio.sleep(0)
        sys.exit(5)

    async def clean_up(self, request: Any) -> Any:
        """Take a moment to release something when cancelled."""
        (self.base_dir / f"running-{request.rollout_id}").touch()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            (self.base_dir / f"released-{request.rollout_id}").touch()

    async def reconfigure(self, request: Any) -> Any:
        stream: Any = sys.stdout
        stream.reconfigure(encoding="utf-8", errors="replace")
        return sys.stdout.name, None

    async def segfault(self, request: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    async def touch_and_wait(self, request: Any) -> Any:
        """Say that it runs, then wait to be told to go on; say so when cancelled."""
        (self.base_dir / f"running-{request.rollout_id}").touch()
        try:
            while not (self.base_dir / "go").exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            (self.base_dir / f"cancelled-{request.rollout_id}").touch()
            raise
        return None, None

    async def sync_client(self, request: Any) -> Any:
        """A synchronous client inside a coroutine blocks the loop while its headers are resolved."""
        client = create_openai_client(
            model="judge", base_url=self.judge_url, auth=InjectedAuth("judge"), request_id=request.rollout_id
        )
        with client:
            reply = client.chat.completions.create(model="judge", messages=[{"role": "user", "content": "hi"}])
        return reply.choices[0].message.content, None

    async def own_loop(self, request: Any) -> Any:
        """Headers resolved in a thread with an event loop of its own, while the main loop is blocked."""
        found: list[Mapping[str, str]] = []

        async def resolve() -> None:
            context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
            found.append(await request.model_auth.headers_for_request(context))

        thread = threading.Thread(target=lambda: asyncio.run(resolve()))
        thread.start()
        thread.join()
        return f"{sorted(found[0])}", None

    async def environ(self, request: Any) -> Any:
        return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items())), None

    async def files(self, request: Any) -> Any:
        opened = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        return f"{Path.cwd()} {opened} {sys.path}", None

    async def other_url(self, request: Any) -> Any:
        try:
            await request.model_auth.headers_for_request(
                ModelRequestContext("https://evil.example/v1", request.model, request.rollout_id)
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}", None
        return "answered", None

    async def unbound(self, request: Any) -> Any:
        try:
            await InjectedAuth("nobody").headers_for_request(ModelRequestContext("http://x/v1", "m", "r"))
        except RuntimeError as error:
            return f"RuntimeError: {error}", None
        return "answered", None

    async def late(self, request: Any) -> Any:
        """The first time keep the auth of the request; the second time use the kept one, which is over."""
        if self.stash is None:
            self.stash = request
            return "kept", None
        old = self.stash
        try:
            await old.model_auth.headers_for_request(ModelRequestContext(old.base_url, old.model, old.rollout_id))
        except Exception as error:
            return f"{type(error).__name__}: {error}", None
        return "answered", None

    async def score_forever(self, request: Any) -> Any:
        return "score forever", None

    async def grandchild(self, request: Any) -> Any:
        process = subprocess.Popen(["/bin/sleep", "3600"], start_new_session=True)
        return str(process.pid), None

    async def odd_rewards(self, request: Any) -> Any:
        return None, {"int": 3, "huge": 10**30, "negative": -0.25, "tiny": 5e-324, "é": 1.0}

    async def secret_text(self, request: Any) -> Any:
        context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
        headers = await request.model_auth.headers_for_request(context)
        print("headers are", headers)
        return f"leaked {headers['Authorization']}", None
