"""Compiles modules of a finished venv with the base interpreter and from file lists, running none of them.

A new venv has nothing compiled. Compiling everything takes longer than installing it (sympy alone six seconds) and
most of it is never imported, so workers tell which modules they loaded, and those are compiled for the next start.
"""

from __future__ import annotations

import asyncio
import json
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from runner.errors import CacheError, InstallTimeoutError
from runner.limits import Limits
from runner.provision.cache import compiled_file, contents_file
from runner.provision.command import DeadlineError, Deadlines, run
from runner.provision.confinement import UMASK
from runner.provision.contents import Contents, digest_of
from runner.provision.environment import installer_environment
from runner.provision.lease import Lease
from runner.provision.venv import Venv
from runner.sandbox.policy import SandboxPolicy

COMPILED_FORMAT: Final = 1
PARALLEL_FROM: Final = 200
"""Files; below that, starting helper processes costs more than they save."""

_COMPILE: Final = "import compileall, os, sys; os.nice(19); os.umask(0o022); sys.exit(not compileall.main())"
"""At the lowest priority: rollouts run at the same time. Whoever may read the modules may read what comes of them."""


async def compile_modules(venv: Venv, modules: Iterable[str], *, limits: Limits | None = None) -> int:
    """Compile modules of a finished venv, such as those a worker reported as loaded.

    Safe while workers run in the venv: compiled files are put in place atomically. One that does not compile, such
    as a template, is left as it is and not tried again. If another process is compiling in the venv, it does nothing.

    Args:
        venv: The venv, from the cache.
        modules: Paths of source files, relative to the venv; those that were not in it when it was finished are left
            out, so the list may come from anybody.
        limits: The deadline is `install_s`.

    Returns:
        Number of files handed to the compiler.

    Raises:
        InstallTimeoutError: it was not done in time; what was compiled until then stays.
        CacheError: the venv's folder cannot be written, or there is no room for the list of files.
    """
    limits = limits or Limits()
    try:
        with tempfile.TemporaryDirectory() as folder:
            lease = Lease.exclusive(venv.path.with_name(f"{venv.path.name}.compiling"), create=True)
            if lease is None:
                return 0
            with lease:
                return await _compile(venv, set(modules), limits, Path(folder))
    except OSError as error:
        raise CacheError(f"modules of {venv.path} cannot be compiled: {error.strerror or error}.") from error


async def compile_folder(folder: Path, venv: Venv, *, limits: Limits | None = None) -> None:
    """Compile the modules below a read-only folder of our own that are not compiled for a venv's interpreter.

    Safe while workers run from it: compiled files are put in place atomically.

    Args:
        folder: The folder; it has no links, and its modules are not changed any more.
        venv: Says which interpreter.
        limits: The deadline is `install_s`.

    Raises:
        InstallTimeoutError: it was not done in time.
        CacheError: the folder cannot be written.
    """
    wanted = await asyncio.to_thread(uncompiled, folder, venv)
    try:
        with tempfile.TemporaryDirectory() as scratch, _writable(Path(), wanted):
            await _run_compiler(venv.base_python, wanted, limits or Limits(), Path(scratch))
    except OSError as error:
        raise CacheError(f"modules of {folder} cannot be compiled: {error.strerror or error}.") from error


def uncompiled(folder: Path, venv: Venv) -> list[Path]:
    """List the modules below a folder of our own that are not compiled for a venv's interpreter."""
    tag = f"cpython-{venv.python_version.replace('.', '')}"
    sources = sorted(folder.glob("**/*.py"))
    return [path for path in sources if not (path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc").exists()]


async def _compile(venv: Venv, modules: set[str], limits: Limits, scratch: Path) -> int:
    known = await asyncio.to_thread(compiled, venv.path)
    wanted = sorted(await asyncio.to_thread(_recorded, venv.path, modules) - known.keys())
    if not wanted:
        return 0
    try:
        with _writable(venv.path, wanted):
            await _run_compiler(venv.base_python, [venv.path / path for path in wanted], limits, scratch)
    finally:
        # also after a deadline or a cancellation: what is there has to be known
        _remember(venv.path, known, wanted)
    return len(wanted)


async def _run_compiler(python: Path, sources: Sequence[Path], limits: Limits, scratch: Path) -> None:
    listing = scratch / "modules.txt"
    listing.write_text("".join(f"{path}\n" for path in sources), encoding="utf-8")
    workers = ["-j", "0"] if len(sources) >= PARALLEL_FROM else []
    try:
        await run(
            [str(python), "-I", "-S", "-c", _COMPILE, "-qq", *workers, "-i", str(listing)],
            env=installer_environment(scratch),
            cwd=scratch,
            deadlines=Deadlines(at=time.monotonic() + limits.install_s, silence_s=limits.install_silence_s),
            # the base interpreter, which executes nothing of what it compiles
            policy=SandboxPolicy(umask=UMASK),
        )
    except DeadlineError as error:
        text = f"compiling {len(sources)} modules was not done after {error.after_s:.3g} s."
        raise InstallTimeoutError(text) from None


def compiled(venv: Path) -> dict[str, dict[str, str]]:
    """Return what was compiled since a venv was finished: for each source, its compiled files and their SHA-256."""
    try:
        content: Any = json.loads(compiled_file(venv).read_bytes())
        if content["format"] != COMPILED_FORMAT:
            return {}
        return {str(source): dict(files) for source, files in content["modules"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # missing, or half of it: everything is compiled again, which changes nothing that is right
        return {}


def _recorded(venv: Path, modules: set[str]) -> set[str]:
    try:
        contents = Contents.from_json(json.loads(contents_file(venv).read_bytes()))
    except (OSError, ValueError):
        return set()
    # where the interpreter has two names for the folder of packages, a worker may tell the other one
    modules = {f"lib/{path[6:]}" if path.startswith("lib64/") else path for path in modules}
    # names that are no text, or hold a line break, do not fit the compiler's list
    return {path for path in modules & contents.files.keys() if path.endswith(".py") and path.isprintable()}


def _remember(venv: Path, known: dict[str, dict[str, str]], sources: Iterable[str]) -> None:
    modules = {**known}
    for source in sources:
        path = venv / source
        made = path.parent.glob(f"__pycache__/{path.stem}.cpython-*.pyc")
        modules[source] = {file.relative_to(venv).as_posix(): digest_of(file) for file in made}
    target = compiled_file(venv)
    temporary = target.with_suffix(".new")
    temporary.write_text(json.dumps({"format": COMPILED_FORMAT, "modules": modules}), encoding="utf-8")
    temporary.replace(target)


@contextmanager
def _writable(root: Path, sources: Iterable[str | Path]) -> Iterator[None]:
    """Let the folders of some files be written while their compiled files are put there."""
    folders = {(root / source).parent for source in sources}
    folders |= {folder / "__pycache__" for folder in folders}
    try:
        for folder in sorted(folders):
            if folder.is_dir():
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IWUSR)
        yield
    finally:
        for folder in sorted(folders):
            if folder.is_dir():
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~0o222)
