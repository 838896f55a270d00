from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

class BaseAgent(ABC):
    logs_dir: Path
    model_name: str | None
    def __init__(self, logs_dir: Path, model_name: str | None = None, *args: Any, **kwargs: Any) -> None: ...
    @property
    def extra_env(self) -> dict[str, str]: ...
    @staticmethod
    @abstractmethod
    def name() -> str: ...
    @abstractmethod
    def version(self) -> str | None: ...
    @abstractmethod
    async def setup(self, environment: BaseEnvironment) -> None: ...
    @abstractmethod
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None: ...
