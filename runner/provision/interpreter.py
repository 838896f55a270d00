"""Finds the installed CPython a venv is made from, and tries each candidate out before believing it.

Comes in: a series such as `3.12`, or a path or version the caller names. Goes out: an `Interpreter` with its real
path. Refuses: another implementation, another series, an interpreter that does not run. What was learned about an
interpreter is kept until its file changes, so that a cached venv is found without starting anything.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from runner.errors import InterpreterNotFoundError, RunnerError, UsageError
from runner.provision.cache import Cache
from runner.provision.candidates import VARIABLES, Candidate, candidates, described_places, on_path
from runner.provision.command import DeadlineError, Deadlines, run
from runner.provision.environment import probe_environment
from runner.sandbox.policy import SandboxPolicy

PROBE_S: Final = 20.0
"""Starting an interpreter takes 20 ms; from a cold network file system it can take seconds."""

_PROBE: Final = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": platform.python_version(),
    "series": "%d.%d" % sys.version_info[:2],
    "base": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "prefix": os.path.realpath(sys.base_prefix),
    "platform": sysconfig.get_platform(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An installed Python that was run and answered.

    Args:
        path: Its executable with all links resolved, never one of a venv.
        implementation: Such as `cpython`.
        version: Full version, such as `3.12.1`.
        series: Such as `3.12`.
        prefix: Where its standard library is installed.
        platform: Such as `linux-x86_64`.
        free_threaded: Built without the global lock: another ABI, for which few wheels exist.
    """

    path: Path
    implementation: str
    version: str
    series: str
    prefix: Path
    platform: str
    free_threaded: bool

    def identity(self) -> dict[str, str | bool]:
        """Everything about it that a venv depends on, for the venv's key."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


async def find_interpreter(series: str, *, python: str | None, cache: Cache) -> Interpreter:
    """Find an installed CPython.

    Args:
        series: The series that is needed.
        python: What to use instead of searching freely: the path of an interpreter or of the folder of a venv or
            installation, the bare name of a program on PATH, or a version (`3.12` or `3.12.1`).
        cache: Where facts about interpreters are kept.

    Raises:
        InterpreterNotFoundError: there is none; the text lists what was looked at.
        UsageError: `python` names a path that does not exist, or another series.
        CacheError: the cache cannot be written.
    """
    memory = _Memory(cache)
    if python is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)?", python):
        return await _named_of_series(python, series, memory)
    if python is not None and ".".join(python.split(".")[:2]) != series:
        raise UsageError(
            f"Python {python} was asked for, but {series} is needed.", hint="Series must be equal; leave it out."
        )
    exact = python if python is not None and python.count(".") == 2 else None
    wanted = exact or series
    remembered = memory.choice(wanted)
    if remembered is not None:
        return remembered
    looked_at: list[str] = []
    seen: set[Path] = set()
    proposed = candidates(series, app_data=cache.virtualenv_dir)
    # in a thread, since proposing reads folders and runs virtualenv's discovery
    while (candidate := await asyncio.to_thread(next, proposed, None)) is not None:
        found, verdict = await _try(candidate, series, exact, seen, memory)
        if verdict:
            looked_at.append(f"{candidate.place}: {candidate.path}: {verdict}")
        if found is not None:
            memory.choose(wanted, found)
            return found
    raise InterpreterNotFoundError(
        f"no CPython {wanted} was found on this machine; looked at {described_places()}.",
        hint=f"Install one (for example `uv python install {series}`), or name it with --python PATH.",
        detail="\n".join(looked_at) or "no candidate had a fitting name",
    )


async def named_interpreter(name: str, *, cache: Cache) -> Interpreter:
    """Return the interpreter that somebody named, whatever its series.

    Args:
        name: Its path, the folder of its installation or of a venv made from it, or the bare name of a program on PATH.
        cache: Where facts about interpreters are kept.

    Raises:
        InterpreterNotFoundError: it does not run, or is no Python.
        UsageError: there is nothing of that name.
        CacheError: the cache cannot be written.
    """
    return await _named(name, _Memory(cache))


async def _named(name: str, memory: _Memory) -> Interpreter:
    path = _meant(name)
    if path is None:
        raise UsageError(f"{name!r} is neither an interpreter nor a version such as 3.12.", hint=_advice_on_name(name))
    facts, verdict = await memory.probe(path)
    if facts is None:
        raise InterpreterNotFoundError(
            f"{path} is not a usable Python: {verdict}.",
            hint="Name the interpreter itself, not a launcher or shim, or leave it out to have one searched for.",
        )
    return facts


async def _named_of_series(name: str, series: str, memory: _Memory) -> Interpreter:
    facts = await _named(name, memory)
    if facts.implementation != "cpython" or facts.series != series:
        raise UsageError(
            f"{_meant(name)} is {facts.implementation} {facts.version}, but CPython {series} is needed.",
            hint="Name an interpreter of that series, or leave it out.",
        )
    return facts


async def _try(
    candidate: Candidate, series: str, exact: str | None, seen: set[Path], memory: _Memory
) -> tuple[Interpreter | None, str]:
    """Try one candidate; a verdict is empty when its file was tried before."""
    real = _real(candidate.path)
    if real in seen:
        return None, ""
    seen.add(real)
    facts, verdict = await memory.probe(candidate.path)
    if facts is None:
        return None, verdict
    if facts.implementation != "cpython":
        return None, f"{facts.implementation} {facts.version}"
    if facts.free_threaded:
        return None, f"free-threaded build of {facts.version}, used only when named by path"
    if facts.series != series or (exact is not None and facts.version != exact):
        return None, f"version {facts.version}"
    return facts, ""


class _Memory:
    """Facts about interpreters by real path, good as long as size, time and inode of the file stay."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._facts: dict[str, Any] = {}
        self._choices: dict[str, str] = {}
        stored = cache.read_json(cache.interpreters_file)
        if isinstance(stored, dict):
            facts, choices = stored.get("facts"), stored.get("choices")
            self._facts = facts if isinstance(facts, dict) else {}
            self._choices = choices if isinstance(choices, dict) else {}

    def choice(self, wanted: str) -> Interpreter | None:
        """Return what the same search found before, if that is still there."""
        path = self._choices.get(_circumstances(wanted))
        return self._known(Path(path)) if isinstance(path, str) else None

    def choose(self, wanted: str, interpreter: Interpreter) -> None:
        self._choices[_circumstances(wanted)] = str(interpreter.path)
        self._store()

    async def probe(self, path: Path) -> tuple[Interpreter | None, str]:
        """Run an interpreter and believe what it says about itself; a text says why it cannot be used."""
        real = _real(path)
        known = self._known(real)
        if known is not None:
            return known, ""
        facts, verdict = await self._run(path)
        if facts is None:
            return None, verdict
        if facts.path != real:
            # a venv, a shim or a launcher: what is used, and therefore checked, is what stands behind it
            behind, verdict = await self._run(facts.path)
            if behind is None or behind.path != facts.path:
                return None, verdict or f"points to {facts.path}, which points elsewhere again"
            facts = behind
        stamp = _stamp(facts.path)
        if stamp is not None:
            self._facts[str(facts.path)] = {"stamp": stamp, **facts.identity()}
            self._store()
        return facts, ""

    async def _run(self, path: Path) -> tuple[Interpreter | None, str]:
        deadlines = Deadlines(at=time.monotonic() + PROBE_S, silence_s=PROBE_S)
        # the root folder as working directory: nothing there steers a shim, and `-I` keeps it off sys.path
        try:
            finished = await run(
                [str(path), "-I", "-S", "-c", _PROBE],
                env=probe_environment(),
                cwd=Path("/"),
                deadlines=deadlines,
                # an installed program of this machine; nothing of a bundle is there yet
                policy=SandboxPolicy(),
            )
        except DeadlineError:
            return None, f"did not answer within {PROBE_S:g} s"
        except RunnerError as error:
            return None, error.message
        if finished.code != 0:
            words = finished.stderr.strip().splitlines()
            return None, f"does not run ({finished.how}{': ' + words[-1] if words else ''})"
        try:
            facts = _interpreter(json.loads(finished.stdout))
        except (ValueError, KeyError, TypeError):
            return None, "does not answer like a Python"
        return facts, ""

    def _known(self, real: Path) -> Interpreter | None:
        entry = self._facts.get(str(real))
        if not isinstance(entry, dict) or entry.get("stamp") != _stamp(real):
            return None
        try:
            return _interpreter({**entry, "base": entry["path"]})
        except (KeyError, TypeError):
            return None

    def _store(self) -> None:
        self._cache.write_json(self._cache.interpreters_file, {"facts": self._facts, "choices": self._choices})


def _interpreter(answer: Mapping[str, Any]) -> Interpreter:
    return Interpreter(
        path=Path(answer["base"]),
        implementation=str(answer["implementation"]),
        version=str(answer["version"]),
        series=str(answer["series"]),
        prefix=Path(answer["prefix"]),
        platform=str(answer["platform"]),
        free_threaded=bool(answer["free_threaded"]),
    )


def _stamp(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev]


def _meant(name: str) -> Path | None:
    if "/" not in name and name != "~":
        # as in a shell, a bare name is never a file that happens to lie in the working directory
        return on_path(name)
    path = Path(name).expanduser().absolute()
    if path.is_dir():
        path = path / "bin" / "python"
    return path if path.is_file() else None


def _advice_on_name(name: str) -> str:
    if "/" not in name and Path(name).exists():
        return f"For the one in the working directory write ./{name}."
    return "Name a path, a program on PATH, or a version; leave it out to have one searched for."


def _real(path: Path) -> Path:
    return path.resolve()


def _circumstances(wanted: str) -> str:
    """Name a search: the same question may have another answer under another PATH or home, or from another Python."""
    asked = [wanted, sys.base_prefix, *(os.environ.get(name, "") for name in VARIABLES)]
    return hashlib.sha256("\0".join(asked).encode("utf-8", "surrogateescape")).hexdigest()[:32]
