"""Compiles what workers of a venv loaded, beside the rollouts, so that the next start is faster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from runner.errors import RunnerError
from runner.limits import Limits
from runner.provision.bytecode import compile_folder, compile_modules, uncompiled
from runner.provision.venv import Venv

FINISH_S: Final = 60.0
"""How long the end of an environment may wait for it; sympy as a whole takes six seconds on one core."""


class Compilation:
    """The compiling for one environment. Belongs to the event loop it is made in.

    Args:
        venv: The venv, with a lease.
        limits: The deadline is `install_s`.
        tell: Told, with a phase and a message, when the end has to wait for it, and when it failed.
    """

    def __init__(self, venv: Venv, limits: Limits, tell: Callable[[str, str], None]) -> None:
        self._venv = venv
        self._limits = limits
        self._tell = tell
        self._waiting: set[str] = set()
        self._folders: list[Path] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, modules: Iterable[str]) -> None:
        """Begin to compile modules; those that are not the venv's own are left out.

        Args:
            modules: Paths relative to the venv, from whomever.
        """
        self._waiting.update(modules)
        self._begin()

    def add_folder(self, folder: Path) -> None:
        """Begin to compile the modules of a folder of our own, outside of the venv, unless that has been done."""
        if uncompiled(folder, self._venv):
            self._folders.append(folder)
            self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._compile(), name="benchmax-compile")

    async def finish(self) -> None:
        """Wait for what has begun, but not for ever; what is not done then is done after another start."""
        if self._task is None or self._task.done():
            return
        self._tell("compile", "compiling the modules that were loaded, for a faster next start")
        await asyncio.wait([self._task], timeout=FINISH_S)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _compile(self) -> None:
        while self._waiting or self._folders:
            modules, self._waiting = self._waiting, set()
            folders, self._folders = self._folders, []
            try:
                for folder in folders:
                    await compile_folder(folder, self._venv, limits=self._limits)
                if modules:
                    await compile_modules(self._venv, modules, limits=self._limits)
            except RunnerError as error:
                # everything works without; only the next start is no faster
                self._tell("compile", f"not done: {error.message}")
