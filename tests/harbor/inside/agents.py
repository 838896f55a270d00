"""Small agents, named by import path."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, SandboxBuildFailedError
from harbor.models.agent.context import AgentContext

from tests.harbor.inside.folder_sandbox import FolderSandbox

HERE = __name__


class Agent(BaseAgent):
    """Does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.chosen = {name: kwargs.pop(name) for name in ("command", "metadata", "error") if name in kwargs}
        super().__init__(*args, **kwargs)

    @staticmethod
    def name() -> str:
        return "small"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        pass


class Commanding(Agent):
    """Runs its option `command`, then reports its option `metadata`."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        if command := self.chosen.get("command"):
            await environment.exec(command)
        context.metadata = self.chosen.get("metadata")


class Telling(Agent):
    """Keeps what it was given: model, variables and instruction. Harbor redacts what agents write to files."""

    told: ClassVar[tuple[str | None, dict[str, str], str]]

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        Telling.told = self.model_name, self.extra_env, instruction


class Failing(Agent):
    """Raises the exception that its option `error` names, made on the spot, after reporting `metadata`."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        context.metadata = self.chosen.get("metadata")
        raise type(self.chosen["error"], (Exception,), {})("as asked")


class Endless(Agent):
    """Never ends by itself."""

    running: ClassVar[int] = 0

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        Endless.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            Endless.running -= 1


class FailingOnce(Failing):
    """Fails in the first trial of a test only."""

    failed: ClassVar[set[str]] = set()

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        trials = str(self.logs_dir.parents[1].resolve())
        if trials not in self.failed:
            self.failed.add(trials)
            await super().run(instruction, environment, context)


class Unbuildable(FolderSandbox):
    """A sandbox whose image cannot be had."""

    async def start(self, force_build: bool) -> None:
        FolderSandbox.live += 1
        raise SandboxBuildFailedError("no such image")

    async def stop(self, delete: bool) -> None:
        FolderSandbox.live -= 1
