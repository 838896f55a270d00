"""A sandbox of Harbor that is a folder: commands run as they are, with the paths of a container led below it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from harbor.environments.base import BaseEnvironment, ExecResult

_OF_A_CONTAINER = re.compile(r"(?<![\w./-])/(?=(?:logs|tests|solution)\b)")


class FolderSandbox(BaseEnvironment):
    """Confines nothing; what it runs are tasks written for these tests. Scripts know its root as `$ROOT`."""

    live: ClassVar[int] = 0
    most_live: ClassVar[int] = 0

    @staticmethod
    def type() -> str:
        return "folder"

    def _validate_definition(self) -> None:
        if not self.environment_dir.is_dir():
            raise FileNotFoundError(self.environment_dir)

    def place(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    async def start(self, force_build: bool) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="folder-sandbox-"))
        for name in ("logs/agent", "logs/verifier", "logs/artifacts", "tests", "solution", "work"):
            self.place(name).mkdir(parents=True)
        FolderSandbox.live += 1
        FolderSandbox.most_live = max(FolderSandbox.most_live, FolderSandbox.live)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root)
        FolderSandbox.live -= 1

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self.place(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, self.place(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.place(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy2(self.place(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.place(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        variables = {"PATH": os.environ["PATH"], "ROOT": str(self.root), **(self._merge_env(env) or {})}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            _OF_A_CONTAINER.sub(f"{self.root}/", command),
            cwd=self.place("work"),
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)
