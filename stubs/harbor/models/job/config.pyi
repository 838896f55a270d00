from collections.abc import Mapping
from pathlib import Path
from typing import Self

from harbor.models.trial.config import TaskConfig

class DatasetConfig:
    path: Path | None
    name: str | None
    ref: str | None
    overwrite: bool
    download_dir: Path | None
    task_names: list[str] | None
    def __init__(
        self,
        *,
        path: Path | None = None,
        name: str | None = None,
        ref: str | None = None,
        overwrite: bool = False,
        download_dir: Path | None = None,
        task_names: list[str] | None = None,
    ) -> None: ...
    async def get_task_configs(self, disable_verification: bool = False) -> list[TaskConfig]: ...
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self: ...
