from collections.abc import Sequence
from pathlib import Path

from harbor.models.task.id import GitTaskId, LocalTaskId, PackageTaskId

class TaskDownloadResult:
    path: Path

class BatchDownloadResult:
    results: list[TaskDownloadResult]

class TaskClient:
    def __init__(self) -> None: ...
    async def download_tasks(
        self,
        task_ids: Sequence[GitTaskId | LocalTaskId | PackageTaskId],
        overwrite: bool = False,
        output_dir: Path | None = None,
    ) -> BatchDownloadResult: ...
