"""One environment that does one bad thing at one moment of its life; both are arguments."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example, RolloutRequest


class MisdeedError(Exception):
    """What the environment raises on purpose."""


def commit(deed: str, folder: str) -> None:
    """Do it, here and now."""
    match deed:
        case "raise":
            raise MisdeedError("on purpose")
        case "sys.exit":
            sys.exit(5)
        case "exit 0":
            os._exit(0)
        case "exit 3":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "SIGSTOP":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "out of memory":
            # its own limit, a little above what it has
            used = 1024 * int(re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[0])
            resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, resource.RLIM_INFINITY))
            try:
                bytearray(2**30)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        case "over the limit":
            bytearray(2**31)
        case "unchecked malloc":
            # what machine code does that does not look at what it was given
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            ctypes.memset(libc.malloc(ctypes.c_size_t(2**31)) or 0, 1, 2**31)
        case "hold the lock":
            # never gives up the interpreter's lock
            re.match(r"(a+)+$", "a" * 60 + "b")
        case "wait for ever":
            threading.Event().wait()
        case "thread":
            threading.Thread(target=threading.Event().wait).start()
        case "grandchild":
            # it has our standard streams
            _note(folder, subprocess.Popen(["/bin/sleep", "600"]).pid)
        case "detached grandchild":
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    _note(folder, os.getpid())
                    os.execv("/bin/sleep", ["sleep", "600"])
                os._exit(0)
            os.wait()
            while not list(Path(folder).glob("left-*")):
                pass
        case _:
            raise AssertionError(deed)


def _note(folder: str, pid: int) -> None:
    Path(folder, f"left-{pid}").touch()


class Fuse:
    """Goes off when it is unpickled."""

    def __init__(self, deed: str, folder: str) -> None:
        self.arguments = (deed, folder)

    def __reduce__(self) -> Any:
        return commit, self.arguments


class Bomb:
    """Goes off when it is formatted."""

    def __init__(self, deed: str, folder: str) -> None:
        self.arguments = (deed, folder)

    def __str__(self) -> str:
        commit(*self.arguments)
        return "formatted"


class Crashing(BaseEnv):
    max_turns = 3

    def __init__(self, phase: str, deed: str, folder: str, fuse: object = None) -> None:
        super().__init__()
        self.phase = phase
        self.deed = deed
        self.folder = folder
        if phase in ("tool", "reward"):
            # takes a while, which is not to count as a rollout's time
            importlib.import_module("openai")
        if phase == "construct":
            commit(deed, folder)

    async def now(self, phase: str) -> None:
        """Do the deed if this is its moment; a coroutine waits in its own way."""
        if phase == self.phase and self.deed == "wait for ever":
            await asyncio.Event().wait()
        elif phase == self.phase:
            commit(self.deed, self.folder)

    async def until(self, name: str) -> None:
        while not Path(self.folder, name).exists():
            await asyncio.sleep(0.01)

    async def stand_by(self) -> None:
        Path(self.folder, "bystanding").touch()
        await self.until("go")

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        await self.now("dataset")
        prompt = {"prompt_messages": [{"role": "user", "content": "go"}]}
        return Dataset([Example(name, {**prompt, "act": name}) for name in ("deed", "fine", "bystander")])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> BaseRollout:
        act = request.example.payload["act"]
        if act == "bystander" and self.phase == "group reward":
            await self.stand_by()
        elif act == "deed" and request.rollout_id.endswith("-0"):
            # its sibling has run to its end and that has been told, and another group is under way
            await self.until("ready")
            print("last words")
            await self.now("rollout")
            if self.phase == "log call":
                logging.getLogger("env").warning("%s", Bomb(self.deed, self.folder))
            if self.phase in ("tool", "reward"):
                return await super().run_rollout(request)
        return BaseRollout(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"x": 1.0},
            messages=[{"role": "user", "content": act}],
            example_args={"act": act},
        )

    async def list_tools(self) -> list[Any]:
        parameters = {"type": "object", "properties": {}}
        return [{"type": "function", "function": {"name": "tool", "parameters": parameters}}]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        await self.now("tool")
        return "done"

    async def compute_reward(self, rollout: BaseRollout) -> Mapping[str, float]:
        await self.now("reward")
        return {"x": 1.0}

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> None:
        match rollouts[0].example_args["act"]:
            case "deed":
                await self.now("group reward")
            case "bystander" if self.phase != "group reward":
                # here, since another limit of time goes for rollouts
                await self.stand_by()

    async def aclose(self) -> None:
        await self.now("shutdown")
