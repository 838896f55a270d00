from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import ArtifactConfig as ArtifactConfig
from harbor.models.task.id import GitTaskId, LocalTaskId, PackageTaskId

class AgentConfig:
    name: str | None
    import_path: str | None
    model_name: str | None
    n_concurrent: int | None
    concurrency_group: str | None
    override_timeout_sec: float | None
    kwargs: dict[str, Any]
    env: dict[str, str]
    def __init__(
        self,
        *,
        name: str | None = None,
        import_path: str | None = None,
        model_name: str | None = None,
        n_concurrent: int | None = None,
        concurrency_group: str | None = None,
        override_timeout_sec: float | None = None,
        kwargs: dict[str, Any] = ...,
        env: dict[str, str] = ...,
    ) -> None: ...
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self: ...

class EnvironmentConfig:
    type: EnvironmentType | None
    import_path: str | None
    kwargs: dict[str, Any]
    env: dict[str, str]
    def __init__(
        self,
        *,
        type: EnvironmentType | str | None = None,  # noqa: A002 - Harbor's name
        import_path: str | None = None,
        kwargs: dict[str, Any] = ...,
        env: dict[str, str] = ...,
    ) -> None: ...
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self: ...

class VerifierConfig:
    override_timeout_sec: float | None
    env: dict[str, str]
    disable: bool
    def __init__(
        self, *, override_timeout_sec: float | None = None, env: dict[str, str] = ..., disable: bool = False
    ) -> None: ...
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self: ...

class TaskConfig:
    path: Path | None
    name: str | None
    ref: str | None
    source: str | None
    def __init__(
        self,
        *,
        path: Path | None = None,
        name: str | None = None,
        ref: str | None = None,
        source: str | None = None,
    ) -> None: ...
    def get_task_id(self) -> GitTaskId | LocalTaskId | PackageTaskId: ...
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self: ...

class TrialConfig:
    task: TaskConfig
    trial_name: str
    trials_dir: Path
    timeout_multiplier: float
    agent_timeout_multiplier: float | None
    verifier_timeout_multiplier: float | None
    agent_setup_timeout_multiplier: float | None
    environment_build_timeout_multiplier: float | None
    agent: AgentConfig
    environment: EnvironmentConfig
    verifier: VerifierConfig
    artifacts: list[str | ArtifactConfig]
    extra_instruction_paths: list[Path]
    def __init__(
        self,
        *,
        task: TaskConfig,
        trial_name: str = "",
        trials_dir: Path = ...,
        timeout_multiplier: float = 1.0,
        agent_timeout_multiplier: float | None = None,
        verifier_timeout_multiplier: float | None = None,
        agent_setup_timeout_multiplier: float | None = None,
        environment_build_timeout_multiplier: float | None = None,
        agent: AgentConfig = ...,
        environment: EnvironmentConfig = ...,
        verifier: VerifierConfig = ...,
        artifacts: list[str | ArtifactConfig] = ...,
        extra_instruction_paths: list[Path] = ...,
    ) -> None: ...
