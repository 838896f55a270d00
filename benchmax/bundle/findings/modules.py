"""Imports that find nothing where the bundle is loaded, and what has to be installed there."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from packaging.markers import InvalidMarker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from benchmax.bundle.capture.declared import Owners
from benchmax.bundle.capture.imports import DelayedImport, delayed_imports, nested_codes
from benchmax.bundle.capture.reach import package_of, reachable_imports
from benchmax.bundle.capture.sources import is_locatable, top_level
from benchmax.bundle.findings.finding import ByReference, Finding
from benchmax.bundle.findings.walk import Walk

_ALWAYS_THERE: Final = frozenset({"benchmax", "cloudpickle"})


class Packages:
    """Which distribution brings which module, and what the declared ones bring along.

    Args:
        pip_dependencies: Valid PEP 508 requirements.
    """

    def __init__(self, pip_dependencies: Sequence[str]) -> None:
        self._declared = [Requirement(entry) for entry in pip_dependencies]
        self._owners = Owners()
        self._brought: set[str] | None = None

    def owners(self, module: str) -> list[str]:
        """Return the names of the distributions that bring a module, as installed here."""
        return sorted(self._owners.of(module))

    def source(self, module: str) -> str:
        """Say where a module comes from, as `ByReference.source`."""
        name = top_level(module)
        if name in sys.stdlib_module_names:
            return "python"
        if name in _ALWAYS_THERE:
            return "benchmax"
        owners = self.owners(name)
        return next((one for one in owners if self.brings(one)), owners[0] if owners else "")

    def is_there(self, module: str) -> bool:
        """Whether a module is there where the bundle is loaded: Python's, benchmax's, or a declared distribution's."""
        name = top_level(module)
        if name in sys.stdlib_module_names or name in _ALWAYS_THERE:
            return True
        return any(self.brings(one) for one in self.owners(name))

    def brings(self, distribution: str) -> bool:
        """Whether a distribution is declared, or needed by one that is, or by benchmax."""
        if self._brought is None:
            self._brought = set()
            for requirement in (Requirement("benchmax"), *self._declared):
                self._add(requirement)
        return distribution in self._brought

    def _add(self, requirement: Requirement) -> None:
        assert self._brought is not None
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in self._brought:
            return
        self._brought |= {name, key}
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            return
        for text in needs:
            try:
                needed = Requirement(text)
                wanted = needed.marker is None or any(
                    needed.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
                )
            except (InvalidRequirement, InvalidMarker, UndefinedEnvironmentName):
                # an old package; installers complain of it better than this can
                continue
            if wanted:
                self._add(needed)


def find_modules(walk: Walk, packages: Packages) -> Iterator[Finding]:
    """Yield modules that the pickle refers to and that nobody promises to bring."""
    scope = walk.travel.scope
    reported: set[str] = set()
    for module, names in walk.references.items():
        node = next(iter(names.values()))
        name = top_level(module)
        if packages.is_there(module) or name in reported:
            continue
        owners = packages.owners(module)
        if scope.is_project_local(module):
            code, fix = "uncaptured-module", f"Pass it along: --local-module {module} (local_modules=[{module}])."
            message = f"it refers to {module}, a module of your project that is left behind"
        elif scope.is_external_source(module):
            code = "external-source"
            message = f"it refers to {module}, source outside of the environment's project"
            fix = f"Take it along (--local-module {module}), or declare what brings it: --pip NAME."
        elif owners:
            code, message = "undeclared-dependency", f"it needs {module}, which {owners[0]} brings"
            fix = f"Declare it: --pip {owners[0]} (pip_dependencies)."
        else:
            continue
        reported.add(name)
        yield Finding(
            severity="error",
            code=code,
            what=node.path,
            message=message,
            fix=fix,
            file=node.anchor.file,
            line=node.anchor.line,
        )


def find_delayed_imports(walk: Walk, env_class: type, packages: Packages) -> Iterator[Finding]:
    """Yield imports that run later and will find nothing: of one's own modules, and of undeclared packages."""
    surely: set[DelayedImport] = set()
    for one in reachable_imports(env_class, walk.travel.is_by_value):
        surely.add(one)
        if _is_source(walk, one.module) and not packages.is_there(one.module):
            yield _delayed(one)
    for _, function in walk.functions:
        package = package_of(function)
        for code in nested_codes(function.__code__):
            for one in delayed_imports(code, package):
                if packages.is_there(one.module):
                    continue
                if _is_source(walk, one.module):
                    if one not in surely:
                        yield _delayed(one)
                else:
                    yield _undeclared(one, packages)


def by_reference(modules: Sequence[str], packages: Packages) -> tuple[ByReference, ...]:
    """Return the top-level packages of modules, each with where it comes from."""
    names = sorted({top_level(module) for module in modules} - {"__main__"})
    return tuple(ByReference(name, packages.source(name)) for name in names)


def _is_source(walk: Walk, module: str) -> bool:
    scope = walk.travel.scope
    # a module without a file of its own, such as one made by exec, is source when it travels
    return scope.is_project_local(module) or scope.is_external_source(module) or walk.travel.is_by_value(module)


def _delayed(one: DelayedImport) -> Finding:
    return Finding(
        severity="error",
        code="delayed-import",
        what=f"{one.function} → import {one.module}",
        message=f"it imports {one.module} when it runs; your modules travel by value, not under their names",
        fix="Move the import to the top of its file.",
        file=one.file,
        line=one.line,
    )


def _undeclared(one: DelayedImport, packages: Packages) -> Finding:
    owners = packages.owners(one.module)
    name = owners[0] if owners else top_level(one.module)
    here = f"which {name} brings" if owners else "which is not installed here"
    if not owners and is_locatable(one.module):
        here = "of which no installed distribution says that it brings it"
    return Finding(
        severity="warning",
        code="undeclared-dependency",
        what=f"{one.function} → import {one.module}",
        message=f"it imports {one.module} when it runs, {here}",
        fix=f"Declare it: --pip {name} (pip_dependencies).",
        file=one.file,
        line=one.line,
    )
