"""Making an artifact of a class in somebody's source tree: imported and dumped in the interpreter that is to own it.

Comes in: a target, `file.py:Class` or `pkg.mod:Class`, and its requirements. Goes out: an artifact on disk. The code
is the author's own and runs unconfined, in a process of its own: this one imports nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from packaging.specifiers import SpecifierSet

from benchmax.bundle import BundleMetadata
from runner.artifact import Artifact, check_folder, read_artifact, write_artifact
from runner.errors import InterpreterNotFoundError, RemoteError, RunnerError, UsageError
from runner.limits import Limits
from runner.process import OutputTail, Process
from runner.provision import Cache, ProvisionOptions, provision
from runner.provision.index import INDEX_VARIABLE
from runner.provision.interpreter import named_interpreter
from runner.provision.wheel import own_requires_python
from runner.record import PhaseEvent
from runner.sandbox.policy import SandboxPolicy

PACK_S: Final = 300.0
"""Importing the target and pickling its class; imports of large libraries take seconds."""

SCRIPT: Final = Path(__file__).parent / "worker" / "pack.py"
OUTPUT_BYTES: Final = 64 * 1024
_VERSION: Final = re.compile(r"\d+\.\d+(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRequest:
    """What to bundle.

    Args:
        target: `file.py:Class` or `pkg.mod:Class`; a class inside another is `Outer.Inner`.
        requirements: The bundle's `pip_dependencies`.
        arguments: Constructor arguments by name.
        local_modules: Further modules to capture by value.
        python: Version or path of the interpreter to bundle for; this one's series when `None`.
        here: Import and dump in this installation's own venv instead of a fresh one.

    Raises:
        UsageError: the target is not of either form, its file is missing, or a requirement cannot be read.
    """

    target: str
    requirements: Sequence[str] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    local_modules: Sequence[str] = ()
    python: str | None = None
    here: bool = False

    def __post_init__(self) -> None:
        module, colon, name = self.target.rpartition(":")
        if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(
                f"TARGET {self.target!r} names no class.", hint="Give it as file.py:Class or pkg.mod:Class."
            )
        if module.endswith(".py"):
            if not Path(module).is_file():
                raise UsageError(f"no such file: {module}.", hint="TARGET is file.py:Class or pkg.mod:Class.")
        elif not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(
                f"TARGET {self.target!r} names no module.", hint="Give it as file.py:Class or pkg.mod:Class."
            )
        if self.here and self.python is not None:
            raise UsageError("--here and --python contradict each other.", hint="Leave one of them out.")
        metadata_for(self.requirements, "3.12")


def metadata_for(requirements: Sequence[str], series: str) -> BundleMetadata:
    """Make metadata of requirements for provisioning.

    Raises:
        UsageError: a requirement cannot be read, or is declared twice.
    """
    try:
        return BundleMetadata(
            pip_dependencies=tuple(requirements),
            python_version=series,
            benchmax_version=version("benchmax"),
            env_class_source=None,
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"--pip: {error}") from error


async def pack(
    request: PackRequest,
    out: Path,
    *,
    cache: Cache,
    provisioning: ProvisionOptions | None = None,
    limits: Limits | None = None,
    on_event: Callable[[PhaseEvent], None] | None = None,
) -> Artifact:
    """Bundle a class and write the artifact to `out`.

    Raises:
        UsageError: the target is not found, or `out` cannot be written.
        RemoteError: importing the target raised, or its class cannot be bundled.
        ProvisionError: no venv could be made.
    """
    limits = limits or Limits()
    began = time.monotonic()
    check_folder(out)

    def tell(phase: str, message: str) -> None:
        if on_event is not None:
            on_event(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - began))

    if request.here:
        python = Path(sys.executable)
    else:
        series, interpreter = await _series(request.python, cache)
        venv = await provision(
            metadata_for(request.requirements, series),
            python=interpreter,
            cache=cache,
            options=(provisioning or ProvisionOptions()),
            limits=limits,
            on_event=lambda event: tell(event.phase, event.message),
        )
        python = venv.python
    with tempfile.TemporaryDirectory(prefix="benchmax-pack-") as name:
        folder = Path(name)
        (folder / "request.json").write_text(
            json.dumps(
                {
                    "target": request.target,
                    "arguments": request.arguments,
                    "requirements": list(request.requirements),
                    "local_modules": list(request.local_modules),
                    "here": request.here,
                }
            )
        )
        tell("import", f"importing {request.target}")
        await _pack_in(folder, python, request)
        packed = read_artifact(folder)
    return write_artifact(packed.bundle, out)


async def _pack_in(folder: Path, python: Path, request: PackRequest) -> None:
    output = OutputTail(OUTPUT_BYTES)
    module = request.target.rpartition(":")[0]
    # the author's own code on the author's own machine: it may need anything of the environment except another
    # Python's paths, and the credentials that the index's address may hold
    env = {
        name: value
        for name, value in os.environ.items()
        if name != INDEX_VARIABLE and (request.here or not name.startswith("PYTHON"))
    }
    process = await Process.start(
        [str(python), *([] if request.here else ["-s"]), "-P", "-X", "utf8", str(SCRIPT), str(folder)],
        env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=Path.cwd(),
        policy=SandboxPolicy(rlimits=(), no_new_privileges=False),
        stdout=output.write,
        stderr=output.write,
    )
    try:
        async with asyncio.timeout(PACK_S):
            how = await process.wait()
    except TimeoutError:
        raise RemoteError(
            f"importing and bundling {module} did not end within {PACK_S:g} s.",
            hint="A module to bundle must not wait for anything or run a program when it is imported.",
            detail=output.text(),
        ) from None
    finally:
        await process.end()
    result_file = folder / "result.json"
    if not how.ok or not result_file.is_file():
        last = " | ".join(output.last_lines(3))
        raise RemoteError(
            f"importing {module} ended the process: {how}." + (f" Last output: {last.rstrip('.')}." if last else ""),
            hint="A module to bundle must be importable without that.",
            detail=output.text(),
        )
    result = json.loads(result_file.read_text("utf-8"))
    if result["ok"]:
        return
    kind: type[RunnerError] = UsageError if result["kind"] == "usage" else RemoteError
    raise kind(result["message"], hint=result["hint"], detail=result["detail"])


async def _series(python: str | None, cache: Cache) -> tuple[str, str | None]:
    """Return the series to bundle for, and the interpreter if one was named."""
    if python is None:
        return f"{sys.version_info.major}.{sys.version_info.minor}", None
    if _VERSION.fullmatch(python):
        return _supported(".".join(python.split(".")[:2]), python), python
    hint = "Give a version such as 3.12, or a path."
    try:
        found = await named_interpreter(python, cache=cache)
    except UsageError as error:
        raise UsageError(f"--python {python}: No such file or program.", hint=f"{hint} {error.hint}") from None
    except InterpreterNotFoundError as error:
        raise UsageError(f"--python {python} is not a Python interpreter.", hint=hint, detail=error.message) from None
    return _supported(found.series, python), str(found.path)


def _supported(series: str, python: str) -> str:
    supported = own_requires_python()
    if not SpecifierSet(supported).contains(series):
        raise UsageError(
            f"--python {python}: benchmax {version('benchmax')} makes bundles for Python {supported}.",
            hint="Name one of those.",
        )
    return series
