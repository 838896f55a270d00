"""pip as installer, run from the wheel that virtualenv carries, never from the venv it fills."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from packaging.version import Version

from runner.errors import ProvisionError
from runner.provision.cache import Cache
from runner.provision.command import Finished
from runner.provision.diagnosis import InstallerFailedError
from runner.provision.pip_output import diagnose, missing_package
from runner.provision.progress import Phase
from runner.provision.resolution import Resolution
from runner.provision.workspace import Workspace

OLDEST: Final = Version("26.1")
"""Older ones cannot forbid prereleases of one package, nor install from a PEP 751 lock."""


class Pip:
    """pip for one build.

    Raises:
        ProvisionError: virtualenv carries no pip that is new enough.
        CacheError: the cache cannot be written.
    """

    def __init__(self, workspace: Workspace) -> None:
        # heavy, and needed only when a venv is built with pip
        from virtualenv.seed.wheels.embed import get_embed_wheel

        wheel = get_embed_wheel("pip", workspace.interpreter.series)
        if wheel is None or Version(wheel.version) < OLDEST:
            found = "none" if wheel is None else wheel.version
            raise ProvisionError(
                f"virtualenv carries no pip {OLDEST} or newer for Python {workspace.interpreter.series} ({found}).",
                hint="Upgrade virtualenv, or install uv.",
            )
        self._version = wheel.version
        self._space = workspace
        self._folder = _unpacked(Path(wheel.path), workspace.cache)

    @property
    def title(self) -> str:
        """Name and version."""
        return f"pip {self._version}"

    async def resolve(
        self,
        lines: Sequence[str],
        *,
        allowed: AbstractSet[str],
        forbidden: AbstractSet[str],
        follow_dependencies: bool,
    ) -> Resolution:
        """See `Installer.resolve`."""
        report = self._space.scratch / "report.json"
        finished = await self._run(
            "install",
            *("--dry-run", "--ignore-installed", "--report", str(report), "--progress-bar", "off"),
            *([] if follow_dependencies else ["--no-deps"]),
            *([f"--all-releases={','.join(sorted(allowed))}"] if allowed else []),
            *([f"--only-final={','.join(sorted(forbidden))}"] if forbidden else []),
            # as words, not in a file: there pip would replace ${NAME} by the value of a variable
            *lines,
            phase="resolve",
        )
        if finished.code != 0:
            await self._fail(finished)
        with self._space.cache.boundary():
            return Resolution.from_pip_report(json.loads(report.read_bytes()))

    async def install(self, lock: Path, *, python: Path) -> None:
        """See `Installer.install`."""
        finished = await self._run(
            "install",
            *("--no-deps", "--no-compile", "--no-warn-script-location", "--progress-bar", "off"),
            *("--root-user-action", "ignore", "--requirement", str(lock)),
            phase="install",
            python=python,
        )
        if finished.code != 0:
            await self._fail(finished)

    async def has_final_release(self, name: str) -> bool:
        """Whether the index has any release of a package that is not a prerelease, for whatever Python.

        Raises:
            InstallerFailedError: the index does not answer.
            InstallTimeoutError: a deadline passed.
        """
        finished = await self._run(
            "index", "versions", name, "--json", "--ignore-requires-python", phase="resolve", quiet=True
        )
        if finished.code == 0:
            return bool(json.loads(finished.stdout)["versions"])
        failure = diagnose(finished, self._space)
        if failure.kind in ("unknown-package", "no-version", "no-wheel"):
            return False
        raise InstallerFailedError(failure)

    async def _fail(self, finished: Finished) -> None:
        failure = diagnose(finished, self._space)
        name = missing_package(finished.output)
        if failure.kind == "unknown-package" and name is not None:
            # pip says the same for a name nobody took, a refused login and wheels for other Pythons; its log tells
            closer = await self._run("index", "versions", name, "-vv", phase="resolve", quiet=True)
            failure = diagnose(finished, self._space, log=closer.output)
        raise InstallerFailedError(failure)

    async def _run(
        self, command: str, *words: str, phase: Phase, python: Path | None = None, quiet: bool = False
    ) -> Finished:
        index = self._space.index
        trusted = ["--trusted-host", index.host] if index.is_plain_http else []
        return await self._space.run(
            [
                *(str(python or self._space.interpreter.path), "-I", str(self._folder / "pip"), command),
                *("--no-input", "--no-color", "--disable-pip-version-check", "--retries", "2", *trusted),
                *("--cache-dir", str(self._space.cache.pip_dir), *words),
            ],
            phase=phase,
            quiet=quiet,
            # in the environment, since every process on the machine can read a command line; no file is read
            env={"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index.url},
        )


def _unpacked(wheel: Path, cache: Cache) -> Path:
    """Unpack pip into the cache once: out of the wheel, every start would compile all of it again."""
    folder = cache.tools_dir / wheel.stem
    if not folder.exists():
        with cache.boundary(), tempfile.TemporaryDirectory(dir=cache.tools_dir, prefix=".new-") as scratch:
            unpacked = Path(scratch) / "pip"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
            try:
                unpacked.rename(folder)
            except OSError:
                # another process was quicker
                if not folder.exists():
                    raise
    return folder
