"""Making an artifact of a class in somebody's source tree: imported and dumped in the interpreter that is to own it.

Comes in: a target, `file.py:Class` or `pkg.mod:Class`, and its requirements. Goes out: an artifact on disk, unless
something is wrong with it, and what that is. The code is the author's own and runs unconfined, in a process of its
own: this one imports nothing of it. What it packed is then loaded and constructed as it will be at a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from packaging.specifiers import SpecifierSet

from benchmax.bundle import BundleMetadata
from benchmax.bundle.findings.finding import CODES, Finding
from runner.artifact import PICKLE_NAME, Artifact, check_folder, read_artifact, write_artifact
from runner.errors import InterpreterNotFoundError, RemoteError, RunnerError, UsageError
from runner.limits import Limits
from runner.process import OutputTail, Process
from runner.proof import prove
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
        accept: Codes of findings that shall not keep the artifact from being written.
        verify: Whether to load and construct what was packed, as a run does.
        secrets: Variables that the constructor needs for that.

    Raises:
        UsageError: the target is not of either form, its file is missing, a requirement cannot be read, or a code is
            none.
    """

    target: str
    requirements: Sequence[str] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    local_modules: Sequence[str] = ()
    python: str | None = None
    here: bool = False
    accept: Collection[str] = ()
    verify: bool = True
    secrets: Mapping[str, str] = field(default_factory=dict)

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
        if unknown := sorted(set(self.accept) - CODES):
            raise UsageError(f"--accept {unknown[0]}: no such finding.", hint=f"There are: {', '.join(sorted(CODES))}.")
        metadata_for(self.requirements, "3.12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What came of bundling.

    Args:
        artifact: The artifact as written; `None` if something was wrong with it.
        findings: Everything found, errors first.
        by_value: What it carries, with sizes in bytes, largest first.
        by_reference: Top-level packages it needs, with where each comes from.
        pickle_bytes: Size of the pickle, 0 if there is none.
        accept: Codes of findings that were accepted.
    """

    artifact: Artifact | None
    findings: Sequence[Finding]
    by_value: Sequence[tuple[str, int]]
    by_reference: Sequence[tuple[str, str]]
    pickle_bytes: int
    accept: Collection[str] = ()

    def refuses(self, finding: Finding) -> bool:
        """Whether a finding keeps the artifact from being written."""
        return finding.severity == "error" and finding.code not in self.accept


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
        RemoteError: importing the target raised, its class cannot be bundled, or something is wrong with it.
        ProvisionError: no venv could be made.
    """
    packed = await try_to_pack(request, out, cache=cache, provisioning=provisioning, limits=limits, on_event=on_event)
    if packed.artifact is None:
        [first, *others] = [one for one in packed.findings if packed.refuses(one)]
        raise RemoteError(
            f"{request.target} is not bundled: {first}." + (f" And {len(others)} more." if others else ""),
            hint=first.fix,
            detail="\n".join(map(str, packed.findings)),
        )
    return packed.artifact


async def try_to_pack(
    request: PackRequest,
    out: Path,
    *,
    cache: Cache,
    provisioning: ProvisionOptions | None = None,
    limits: Limits | None = None,
    on_event: Callable[[PhaseEvent], None] | None = None,
) -> Packed:
    """Bundle a class and, unless something is wrong with it, write the artifact to `out`.

    Raises:
        UsageError: the target is not found, or `out` cannot be written.
        RemoteError: importing the target raised, or it is no class that can be bundled.
        ProvisionError: no venv could be made.
    """
    limits = limits or Limits()
    began = time.monotonic()
    check_folder(out)

    def tell(phase: str, message: str) -> None:
        if on_event is not None:
            on_event(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - began))

    if request.here:
        python, interpreter = Path(sys.executable), None
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
        result = await _pack_in(folder, python, request)
        artifact = read_artifact(folder) if (folder / PICKLE_NAME).is_file() else None
    found = _read_report(result, artifact, request)
    if artifact is None or any(map(found.refuses, found.findings)):
        return replace(found, artifact=None)
    if request.verify:
        tell("verify", "loading and constructing it in a process of its own")
        proved = await prove(
            Artifact.of(artifact.bundle),
            python=interpreter,
            secrets=request.secrets,
            cache=cache,
            provisioning=provisioning or ProvisionOptions(),
            limits=limits,
            source=_only_file(request, found),
            tell=tell,
        )
        found = replace(found, findings=(*proved, *found.findings))
        if any(map(found.refuses, proved)):
            return replace(found, artifact=None)
    return replace(found, artifact=write_artifact(artifact.bundle, out, facts=_facts(result, artifact)))


def _read_report(result: Mapping[str, Any], artifact: Artifact | None, request: PackRequest) -> Packed:
    report = result["report"]
    size = 0 if artifact is None else len(artifact.bundle.pickled)
    if report is None:
        unexamined = Finding(
            severity="warning",
            code="not-all-examined",
            what=request.target,
            message="the benchmax that the requirements ask for examines nothing",
            fix="Leave benchmax out of the requirements.",
        )
        return Packed(artifact=artifact, findings=(unexamined,), by_value=(), by_reference=(), pickle_bytes=size)
    return Packed(
        artifact=artifact,
        # another release may say more of each
        findings=tuple(Finding(**{one.name: said[one.name] for one in fields(Finding)}) for said in report["findings"]),
        by_value=tuple((one["name"], one["bytes"]) for one in report["by_value"]),
        by_reference=tuple((one["module"], one["source"]) for one in report["by_reference"]),
        pickle_bytes=size,
        accept=request.accept,
    )


def _only_file(request: PackRequest, found: Packed) -> str:
    module = request.target.rpartition(":")[0]
    alone = len([name for name, _ in found.by_value if not name.startswith("constructor_args[")]) == 1
    return str(Path(module).absolute()) if alone and module.endswith(".py") else ""


def _facts(result: Mapping[str, Any], artifact: Artifact) -> bytes:
    """Return the content of `env-facts.json`, as little as the digest where nothing was examined."""
    facts = result["facts"] or {"format": 1, "digest": artifact.digest}
    return json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n"


async def _pack_in(folder: Path, python: Path, request: PackRequest) -> Mapping[str, Any]:
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
    result: dict[str, Any] = json.loads(result_file.read_text("utf-8"))
    if result["ok"]:
        return result
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
