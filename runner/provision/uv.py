"""uv as installer: resolves with `uv pip compile`, installs with `uv pip sync`, always without its configuration."""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from runner.provision.diagnosis import InstallerFailedError
from runner.provision.plan import LINK_MODE
from runner.provision.resolution import Resolution
from runner.provision.uv_output import diagnose
from runner.provision.workspace import Workspace

OLDEST: Final = (0, 12)
"""Older ones cannot forbid prereleases of one package, nor write a PEP 751 lock reliably."""

_EACH: Final = ("--no-config", "--no-python-downloads", "--color", "never")


@functools.cache
def find_uv() -> tuple[Path, str] | None:
    """Return uv's path and version, `None` where there is none that is new enough.

    The one installed next to the runner comes first, then PATH.
    """
    try:
        from uv import find_uv_bin

        place, version = Path(find_uv_bin()), importlib.metadata.version("uv")
        if _new_enough(version):
            return place, version
    except (ImportError, FileNotFoundError):
        # optional at run time: pip takes its place
        pass
    on_path = shutil.which("uv")
    if on_path is None or not Path(on_path).is_absolute():
        return None
    try:
        answer = subprocess.run([on_path, "--version"], capture_output=True, text=True, timeout=20, check=True)
        version = answer.stdout.split()[1]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return (Path(on_path), version) if _new_enough(version) else None


def _new_enough(version: str) -> bool:
    try:
        return Version(version).release[:2] >= OLDEST
    except InvalidVersion:
        return False


class Uv:
    """uv for one build."""

    def __init__(self, workspace: Workspace) -> None:
        found = find_uv()
        assert found is not None  # the family is decided by the same function
        self._uv, self._version = found
        self._space = workspace
        self._cache = ("--cache-dir", str(workspace.cache.uv_dir))
        # in the environment, since every process on the machine can read a command line
        self._env = {"UV_DEFAULT_INDEX": workspace.index.url, "UV_HTTP_TIMEOUT": "30", "UV_HTTP_RETRIES": "2"}

    @property
    def title(self) -> str:
        """Name and version."""
        return f"uv {self._version}"

    async def resolve(
        self,
        lines: Sequence[str],
        *,
        allowed: AbstractSet[str],
        forbidden: AbstractSet[str],
        follow_dependencies: bool,
    ) -> Resolution:
        """See `Installer.resolve`."""
        asked = self._space.scratch / "requirements.in"
        lock = self._space.scratch / "pylock.toml"
        with self._space.cache.boundary():
            asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
            lock.unlink(missing_ok=True)
        finished = await self._space.run(
            [
                *(str(self._uv), "pip", "compile", *_EACH, *self._cache, "--no-progress", "--no-header"),
                *("--python", str(self._space.interpreter.path), "--format", "pylock.toml", "--quiet"),
                *([] if follow_dependencies else ["--no-deps"]),
                *(f"--prerelease-package={name}=allow" for name in sorted(allowed)),
                *(f"--prerelease-package={name}=disallow" for name in sorted(forbidden)),
                *("--output-file", str(lock), str(asked)),
            ],
            phase="resolve",
            env=self._env,
        )
        if finished.code != 0:
            raise InstallerFailedError(diagnose(finished, self._space))
        with self._space.cache.boundary():
            return Resolution.from_lock(lock.read_text(encoding="utf-8"))

    async def install(self, lock: Path, *, python: Path) -> None:
        """See `Installer.install`."""
        words = [
            *(str(self._uv), "pip", "sync", *_EACH, *self._cache, "--link-mode", LINK_MODE),
            *("--preview-features", "pylock", "--python", str(python), str(lock)),
        ]
        # asked to, uv takes files it has without checking back; otherwise it asks for each of them again, and where
        # a mirror does not answer "not modified" it loads all of them again. What it has is checked by digest.
        offline = await self._space.run([*words, "--offline"], phase="install", env=self._env, quiet=True)
        if offline.code == 0:
            return
        finished = await self._space.run(words, phase="install", env=self._env)
        if finished.code != 0:
            raise InstallerFailedError(diagnose(finished, self._space))
