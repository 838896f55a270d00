"""Compiles modules of a venv with the base interpreter and from file lists, running none of them.

A new venv has only compiled what every worker loads. Compiling everything takes longer than installing it (sympy
alone six seconds) and most of it is never imported; `compile_modules` takes the list of what a worker did load.
"""

from __future__ import annotations

import asyncio
import csv
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from runner.errors import InstallTimeoutError
from runner.limits import Limits
from runner.provision.command import DeadlineError, Deadlines, run
from runner.provision.environment import installer_environment
from runner.provision.venv import Venv
from runner.provision.workspace import Workspace

STARTUP: Final = frozenset({"benchmax", "cloudpickle", "msgspec", "packaging"})
"""Packages that every worker loads before its bundle."""

PARALLEL_FROM: Final = 200
"""Files; below that, starting helper processes costs more than they save."""


async def compile_startup(site_packages: Path, space: Workspace) -> None:
    """Compile the packages of a new venv that every worker loads.

    Args:
        site_packages: Where packages are installed.
        space: The build this is part of.

    Raises:
        InstallTimeoutError: a deadline passed.
        CacheError: the cache cannot be written.
    """
    with space.cache.boundary():
        files = await asyncio.to_thread(lambda: sorted(set(recorded_modules(site_packages, STARTUP))))
        if not files:
            return
        listing = _write_listing(space.scratch, files)
    space.progress.tell("compile", f"compiling {len(files)} modules that every worker loads")
    await space.run(_command(space.interpreter.path, listing, len(files)), phase="compile")


async def compile_modules(venv: Venv, modules: Iterable[Path], *, limits: Limits | None = None) -> int:
    """Compile modules of a finished venv, such as those a worker reported as loaded.

    Safe while workers run in the venv: compiled files are put in place atomically. One that does not compile, such
    as a template, is left as it is.

    Args:
        venv: The venv.
        modules: Paths of modules; those outside its site-packages are left out.
        limits: The deadline is `install_s`.

    Returns:
        Number of files handed to the compiler.

    Raises:
        InstallTimeoutError: it was not done in time.
        OSError: there is no room for the list of files.
    """
    limits = limits or Limits()
    deadlines = Deadlines(at=time.monotonic() + limits.install_s, silence_s=limits.install_silence_s)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        inside = await asyncio.to_thread(lambda: sorted(_inside(venv, modules)))
        if inside:
            listing = _write_listing(scratch, inside)
            try:
                await run(
                    _command(venv.base_python, listing, len(inside)),
                    env=installer_environment(scratch),
                    cwd=scratch,
                    deadlines=deadlines,
                )
            except DeadlineError as error:
                raise InstallTimeoutError(
                    f"compiling {len(inside)} modules was not done after {error.after_s:.3g} s."
                ) from None
    return len(inside)


def recorded_modules(site_packages: Path, packages: frozenset[str]) -> Iterator[Path]:
    """List the module files that installed packages record inside the folder.

    Args:
        site_packages: Where packages are installed.
        packages: Canonical names of the packages wanted.
    """
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        if canonicalize_name(record.parent.name.partition("-")[0]) not in packages:
            continue
        with record.open(encoding="utf-8", errors="surrogateescape", newline="") as rows:
            for row in csv.reader(rows):
                # a record can name anything; only what lies in this folder is this venv's
                if row and row[0].endswith(".py") and not row[0].startswith("/") and ".." not in row[0].split("/"):
                    yield site_packages / row[0]


def _inside(venv: Venv, modules: Iterable[Path]) -> Iterator[Path]:
    root = (venv.path / "lib").resolve()
    for module in modules:
        path = module.resolve()
        if path.suffix == ".py" and path.is_relative_to(root) and path.is_file():
            yield path


def _write_listing(scratch: Path, files: Iterable[Path]) -> Path:
    listing = scratch / "modules.txt"
    lines = [f"{file}\n" for file in files if "\n" not in str(file)]
    listing.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    return listing


def _command(python: Path, listing: Path, count: int) -> list[str]:
    workers = ["-j", "0"] if count >= PARALLEL_FROM else []
    return [str(python), "-I", "-S", "-m", "compileall", "-qq", *workers, "-i", str(listing)]
