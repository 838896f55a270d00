"""`LocalSandbox`: a Harbor environment without Docker, each trial in a sandbox of its own on this host.

Named by import path: `EnvironmentConfig(import_path="benchmax.envs.harbor.local:LocalSandbox")`. The sandbox has this
host's system, writable and private, instead of an image; so of a Dockerfile it honours what needs no build, and refuses
the rest as `SandboxBuildFailedError`, unless `assume_host` says that this host has what a build would have installed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, TaskOS

from benchmax.envs.harbor.archive import ArchiveError, packed, unpack
from benchmax.envs.harbor.dockerfile import PLAIN_IMAGES, Copy, Recipe, is_plain, read_dockerfile
from benchmax.envs.harbor.kept import Kept
from benchmax.envs.harbor.link import Finished, SandboxEndedError, SandboxError, SandboxLink
from benchmax.envs.harbor.opening import SandboxRefusedError, SandboxRequest, open_sandbox

logger = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
OUTPUT_BYTES: Final = 8 * MIB
"""Kept of each output of one command: half from its beginning, half from its end."""

SHOWN_COMMAND: Final = 500
SHOWN_OUTPUT: Final = 2_000
SHOWN_LINES: Final = 15
"""Characters of a command, and characters and lines of its output, that are logged."""

VERIFIER_FOLDER: Final = "/logs/verifier"
TESTS_OUTPUT: Final = "test-stdout.txt"
"""Where Harbor has a verifier's files, and among them what its test script prints."""


class LocalSandbox(BaseEnvironment):
    """A Harbor environment whose commands run in a sandbox on this host, as root of that sandbox or as a task's user.

    Args:
        assume_host: Take this host's system for whatever image a task names, and pass over instructions of its
            Dockerfile that would have changed it. False by default.
        args, kwargs: What Harbor gives every environment.

    Raises:
        SandboxBuildFailedError: the task needs a GPU, a TPU, Windows, or a network with some hosts only.
    """

    def __init__(self, *args: Any, assume_host: bool = False, **kwargs: Any) -> None:
        self._assume_host = assume_host
        self._recipe = Recipe()
        self._link: SandboxLink | None = None
        self._failure: SandboxBuildFailedError | None = None
        self._reserved = False
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Name of this kind of environment."""
        return "benchmax-local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """A network or none; nothing of the host is mounted."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Limits, which lower those of the runner; parts of processors too, in releases that know of them."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        # before Harbor does, in whose words it would be a fault of the agent
        config = self.task_env_config
        if config.os == TaskOS.WINDOWS:
            raise _beyond("the task is for Windows")
        if config.gpus:
            raise _beyond(f"the task needs {config.gpus} GPUs")
        if config.tpu is not None:
            raise _beyond("the task needs a TPU")
        if self.network_policy.network_mode == NetworkMode.ALLOWLIST:
            raise _beyond("the task's network is to reach some hosts only")

    # -- life ---------------------------------------------------------------------------------------------

    async def reserve(self) -> None:
        """Open the sandbox before the trial begins: waiting for it is then no part of the time that it has.

        What is in its way is raised by `start`.
        """
        self._reserved = True
        try:
            self._recipe = await asyncio.to_thread(self._read_definition)
            self._link = await SandboxLink.open(await open_sandbox(self._request()))
        except SandboxBuildFailedError as error:
            self._failure = error
        except (SandboxRefusedError, SandboxError) as error:
            self._failure = SandboxBuildFailedError(f"{error}")

    async def start(self, force_build: bool) -> None:
        """Open the sandbox, if `reserve` has not, and make of it what the task's Dockerfile says.

        Args:
            force_build: Of no meaning: each sandbox is fresh.

        Raises:
            SandboxBuildFailedError: the task needs what is not there, or no sandbox can be had; the text says which.
        """
        if not self._reserved:
            await self.reserve()
        # started again, it is another one
        self._reserved = False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        try:
            await self._furnish()
        except (SandboxError, OSError) as error:
            await self.stop(delete=True)
            raise SandboxBuildFailedError(f"{error}") from error
        except BaseException:
            await self.stop(delete=True)
            raise

    def _request(self) -> SandboxRequest:
        memory_mb, disk_mb = self._effective_memory_mb, self._effective_storage_mb
        return SandboxRequest(
            rollout_id=self.trial_paths.trial_dir.name,
            cpus=self._effective_cpus,
            memory_bytes=None if memory_mb is None else memory_mb * MIB,
            disk_bytes=None if disk_mb is None else disk_mb * MIB,
            network=self.network_policy.network_mode == NetworkMode.PUBLIC,
        )

    async def stop(self, delete: bool) -> None:
        """End the sandbox and everything in it. Safe to call twice.

        Args:
            delete: Of no meaning: nothing of it stays.
        """
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    def _read_definition(self) -> Recipe:
        """Read what the task says of its environment.

        Raises:
            SandboxBuildFailedError: something in it is beyond this host.
        """
        named, file = self.task_env_config.docker_image, self.environment_dir / "Dockerfile"
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise _beyond("docker-compose.yaml asks for containers beside the task's own")
        if not named and not file.is_file():
            raise SandboxBuildFailedError(
                f"the task's environment is not defined: {file} is missing and docker_image is not set. "
                "Add one of them."
            )
        try:
            recipe = read_dockerfile(file) if file.is_file() else Recipe()
        except (OSError, UnicodeDecodeError) as error:
            raise SandboxBuildFailedError(f"the Dockerfile cannot be read: {error}") from error
        image = recipe.image if file.is_file() else named
        problems = list(recipe.beyond)
        if image is not None and not is_plain(image):
            problems.insert(0, f"the image {image} is none of {', '.join(PLAIN_IMAGES)}")
        if recipe.copies and (self.environment_dir / ".dockerignore").exists():
            problems.append(".dockerignore is not read, and COPY would take along what it excludes")
        foreign = [mount["target"] for mount in self._mounts if self._is_foreign(mount.get("source"))]
        if foreign:
            raise _beyond(f"folders of the host are to be mounted at {', '.join(foreign)}")
        if problems and not self._assume_host:
            raise _beyond("; ".join(problems))
        for problem in problems:
            logger.warning("passed over, since this host is taken for the task's image: %s", problem)
        return recipe

    def _is_foreign(self, source: str | None) -> bool:
        # Harbor names folders of the trial, whose content it fetches itself where they are not mounted
        return source is not None and not Path(source).is_relative_to(self.trial_paths.trial_dir.resolve())

    async def _furnish(self) -> None:
        recipe, config = self._recipe, self.task_env_config
        if config.workdir:
            recipe.workdir = config.workdir
            recipe.folders.append(config.workdir)
        if recipe.folders:
            await self._must(f"mkdir -p {shlex.join(recipe.folders)}")
        for copy in recipe.copies:
            await self._copy(copy)
        targets = self._mount_targets(writable_only=True)
        if targets:
            made = await self.ensure_dirs(targets)
            if made is not None and made.return_code != 0:
                raise SandboxError(f"the folders of the trial cannot be made: {made.stderr or made.stdout}")
        await self._upload_environment_dir_after_start()
        asked = re.match(r"(?:docker\.io/)?(?:library/)?python:(3\.\d+)", recipe.image or config.docker_image or "")
        if asked:
            await self._compare_python(asked.group(1))

    async def _copy(self, copy: Copy) -> None:
        sources = [found for name in copy.sources for found in self._matching(name)]
        into = copy.target.endswith("/") or len(sources) > 1 or await self._opened.type_of(copy.target) == "folder"
        for source in sources:
            if source.is_dir():
                await self._put_folder(source, copy.target, copy.owner)
            else:
                target = str(PurePosixPath(copy.target) / source.name) if into else copy.target
                await self._put_file(source, target, copy.mode, copy.owner)
            if source.is_dir() and copy.mode is not None:
                await self._must(f"chmod -R {copy.mode:o} {shlex.quote(copy.target)}")

    def _matching(self, name: str) -> list[Path]:
        if name == ".":
            return [self.environment_dir]
        found = sorted(self.environment_dir.glob(name))
        for path in found:
            if not path.resolve().is_relative_to(self.environment_dir.resolve()):
                raise FileNotFoundError(
                    f"the Dockerfile copies {name}, and {path} leads out of the task's folder. Put a file in its place."
                )
        if not found:
            raise FileNotFoundError(
                f"the Dockerfile copies {name}, and {self.environment_dir} has no such file. Add it, or fix the name."
            )
        return found

    async def _compare_python(self, series: str) -> None:
        command = "python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'"
        _, stdout, _ = await self._run(command, env={}, cwd=None, user=None, timeout_s=60)
        found = stdout.text().strip()
        if found != series:
            logger.warning("the task is written for Python %s; python3 of this host is %s", series, found or "missing")

    async def _must(self, command: str) -> None:
        finished, _, stderr = await self._run(command, env={}, cwd="/", user=None, timeout_s=None)
        if finished.exit != 0:
            raise SandboxError(f"{command} failed with exit code {finished.exit}: {stderr.text().strip()}")

    # -- commands -----------------------------------------------------------------------------------------

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command.

        Args:
            command: A line for bash.
            cwd: Where it starts; by default in the task's working folder.
            env: Variables beside those of the task and its Dockerfile.
            timeout_sec: After that many seconds it is killed, with what it started, and its exit code is 124.
            user: Who runs it; by default whoever the trial or the Dockerfile says, else root.

        Returns:
            What it printed, of much the beginning and the end, and its exit code.

        Raises:
            SandboxError: it could not be started, or the sandbox is gone.
        """
        who = self._resolve_user(user)
        who = self._recipe.user if who is None else who
        began = time.monotonic()
        finished, stdout, stderr = await self._run(
            command,
            env={**self._recipe.variables, **(self._merge_env(env) or {})},
            cwd=cwd or self._recipe.workdir,
            user=who,
            timeout_s=timeout_sec,
        )
        errors = stderr.text()
        if finished.timed_out:
            errors += f"{'' if not errors or errors.endswith(chr(10)) else chr(10)}timed out after {timeout_sec} s\n"
        result = ExecResult(stdout=stdout.text(), stderr=errors, return_code=finished.exit)
        _log(command, "root" if who is None else str(who), finished, time.monotonic() - began, result)
        return result

    async def _run(
        self, command: str, *, env: dict[str, str], cwd: str | None, user: str | int | None, timeout_s: float | None
    ) -> tuple[Finished, Kept, Kept]:
        stdout, stderr = Kept(OUTPUT_BYTES), Kept(OUTPUT_BYTES)
        finished = await self._opened.run(
            command,
            cwd=cwd,
            env=env,
            user=user,
            timeout_s=timeout_s,
            stdout=stdout.add,
            stderr=stderr.add,
        )
        return finished, stdout, stderr

    @property
    def _opened(self) -> SandboxLink:
        if self._link is None:
            raise SandboxEndedError("the trial's sandbox is not there: it was not started, or was stopped.")
        return self._link

    # -- files --------------------------------------------------------------------------------------------

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file of this process's host into the sandbox, as root's.

        Args:
            source_path: The file.
            target_path: Where it goes; into it, if that is a folder.

        Raises:
            OSError: it cannot be read.
            SandboxError: it cannot be written.
        """
        source, target = Path(source_path), str(target_path)
        if target.endswith("/") or await self._opened.type_of(target) == "folder":
            target = str(PurePosixPath(target) / source.name)
        await self._put_file(source, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder of this process's host holds into a folder of the sandbox, as root's.

        Args:
            source_dir: The folder.
            target_dir: Where its content goes; made if it is not there.

        Raises:
            OSError: it cannot be read.
            SandboxError: it cannot be written.
        """
        await self._put_folder(Path(source_dir), str(target_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox.

        Args:
            source_path: The file.
            target_path: Where it goes; into it, if that is a folder.

        Raises:
            FileNotFoundError: it is not there.
            OSError: it cannot be written here.
            SandboxError: it cannot be read.
        """
        with _opened_target(Path(target_path), PurePosixPath(source_path).name) as file:
            await self._get(str(source_path), file, kind="file")

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder of the sandbox holds, over what is there; links and special files are left out.

        Args:
            source_dir: The folder.
            target_dir: Where its content goes; made if it is not there.

        Raises:
            FileNotFoundError: it is not there.
            OSError: it cannot be written here.
            SandboxError: it cannot be read, or what came cannot be unpacked.
        """
        with tempfile.TemporaryFile() as file:
            await self._get(str(source_dir), file, kind="tar")
            file.seek(0)
            try:
                left_out = await asyncio.to_thread(unpack, file, Path(target_dir))
            except ArchiveError as error:
                raise SandboxError(f"{source_dir} cannot be fetched: {error}.") from error
        if left_out:
            logger.warning("%s: %d links and special files were left out", source_dir, left_out)
        printed = Path(target_dir) / TESTS_OUTPUT
        if str(source_dir) == VERIFIER_FOLDER and printed.is_file():
            # its command sends all of it there, and shows nothing itself
            lines = _tail(printed.read_text("utf-8", "replace"))
            logger.info("%s", "\n".join([f"{VERIFIER_FOLDER}/{TESTS_OUTPUT}:", *lines]))

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a folder at a path.

        Args:
            path: Where to look, links followed.
            user: Of no meaning: root looks.
        """
        return await self._opened.type_of(str(path)) == "folder"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        """Whether there is a file at a path.

        Args:
            path: Where to look, links followed.
            user: Of no meaning: root looks.
        """
        return await self._opened.type_of(str(path)) == "file"

    async def _put_file(
        self, source: Path, target: str, mode: int | None = None, owner: str | int | None = None
    ) -> None:
        with source.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777 if mode is None else mode
            await self._opened.put(file, target, kind="file", mode=mode, owner=owner)

    async def _put_folder(self, source: Path, target: str, owner: str | int | None = None) -> None:
        with await asyncio.to_thread(packed, source) as file:
            await self._opened.put(file, target, kind="tar", owner=owner)

    async def _get(self, path: str, file: IO[bytes], *, kind: Any) -> None:
        try:
            await self._opened.get(path, file, kind=kind)
        except SandboxError as error:
            if error.kind == "missing":
                raise FileNotFoundError(f"{path} is not in the sandbox") from error
            raise


def _opened_target(target: Path, name: str) -> IO[bytes]:
    if target.is_dir():
        target /= name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.open("wb")


def _beyond(what: str) -> SandboxBuildFailedError:
    return SandboxBuildFailedError(
        f"the local sandbox has this host's system and no image, and cannot do this: {what}. "
        "Use another Harbor environment (docker, modal, daytona), change the task, or, where this host has what is "
        "asked for, set assume_host in the environment's kwargs."
    )


def _log(command: str, user: str, finished: Finished, seconds: float, result: ExecResult) -> None:
    """Log a command and how it ended, so that it is found in the rollout's record."""
    how = "timed out" if finished.timed_out else f"exit {finished.exit}"
    shown = command.strip()
    shown = shown if len(shown) <= SHOWN_COMMAND else f"{shown[:SHOWN_COMMAND]}…"
    printed = _tail(f"{result.stdout or ''}{result.stderr or ''}")
    logger.info("%s", "\n".join([f"$ {shown}", f"[{user}, {how}, {seconds:.2f} s]", *printed]))


def _tail(text: str) -> list[str]:
    return text[-SHOWN_OUTPUT:].splitlines()[-SHOWN_LINES:]
