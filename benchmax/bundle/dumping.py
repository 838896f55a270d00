"""From an environment class to a bundle: pickle it, take its own source along, refuse what would fail elsewhere."""

from __future__ import annotations

import ast
import inspect
import logging
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Final

from benchmax.bundle.capture.blame import blame
from benchmax.bundle.capture.declared import DeclaredModules
from benchmax.bundle.capture.guards import (
    refuse_delayed_imports,
    refuse_external_source,
    refuse_local_references,
    warn_of_prompt_references,
)
from benchmax.bundle.capture.reach import reachable_imports
from benchmax.bundle.capture.references import find_references
from benchmax.bundle.capture.rounds import capture_local_modules, local_references
from benchmax.bundle.capture.serializer import CaptureSession, capture_session, serialize
from benchmax.bundle.capture.sources import SourceScope
from benchmax.bundle.compatibility import UNKNOWN_VERSION, running_benchmax, running_python
from benchmax.bundle.dependencies import normalize_dependencies
from benchmax.bundle.digest import Bundle
from benchmax.bundle.errors import BundlingError
from benchmax.bundle.metadata import BundleMetadata

_FIRST_UNTRIED_PYTHON: Final = (3, 14)

logger = logging.getLogger("benchmax.bundle")


def dump_bundle(
    env_class: type,
    *,
    constructor_args: Mapping[str, object] | None = None,
    pip_dependencies: Sequence[str] | None = None,
    local_modules: Iterable[ModuleType] | None = None,
    env_class_source: str | None = None,
    auto_local_modules: bool = True,
) -> Bundle:
    """Pack an environment class and its constructor arguments.

    Modules of the class's own project (the nearest folder above it with a `pyproject.toml`) travel by value.
    Everything else has to be installed where the bundle is loaded.

    The process is left as it was: cloudpickle's registry holds what it held before, no class or module object is
    touched, and project modules imported only to capture them leave `sys.modules` again.

    Args:
        env_class: A concrete subclass of `Environment`.
        constructor_args: Keyword arguments for the class, pickled along.
        pip_dependencies: PEP 508 requirements to be installed before loading.
        local_modules: Module objects to take along by value, needed for source outside the project.
        env_class_source: Source text for the metadata; by default what `inspect` finds, `None` if nothing.
        auto_local_modules: Whether to capture modules of the project without being asked.

    Returns:
        The bundle.

    Raises:
        BundlingError: anything is wrong with the arguments, an object cannot be pickled, or the bundle would refer to
            source that cannot be imported where it is loaded.
    """
    if sys.version_info >= _FIRST_UNTRIED_PYTHON:
        raise BundlingError(f"Python {running_python()} cannot make bundles yet. Use Python 3.11, 3.12 or 3.13.")
    _check_env_class(env_class)
    try:
        dependencies = normalize_dependencies(() if pip_dependencies is None else pip_dependencies)
    except (TypeError, ValueError) as error:
        raise BundlingError(f"Invalid pip_dependencies: {error}") from error
    benchmax_version = running_benchmax()
    if benchmax_version == UNKNOWN_VERSION:
        raise BundlingError(
            "The version of benchmax is unknown: no distribution `benchmax` is installed. Install it, then bundle."
        )
    explicit = _check_local_modules(local_modules)
    arguments = _check_constructor_args(constructor_args)
    if not isinstance(env_class_source, (str, type(None))):
        raise BundlingError(f"env_class_source must be a string, got {type(env_class_source).__name__}.")
    pickled = _pack(env_class, arguments, explicit, dependencies, auto_local_modules=auto_local_modules)
    try:
        metadata = BundleMetadata(
            pip_dependencies=dependencies,
            python_version=running_python(),
            benchmax_version=benchmax_version,
            env_class_source=_source_of(env_class) if env_class_source is None else env_class_source,
        )
    except ValueError as error:
        raise BundlingError(f"The metadata of {_name(env_class)} cannot be written: {error}") from error
    logger.info("[bundle] dumped %s: %d bytes, %d requirements", _name(env_class), len(pickled), len(dependencies))
    return Bundle(pickled=pickled, metadata=metadata)


def unregistered_local_refs(pickled: bytes) -> list[str]:
    """Return the project-local modules a pickle refers to by name, sorted.

    Every referenced module may be of a project of its own, unlike in `dump_bundle`, which knows the project.

    Raises:
        BundlingError: the bytes are not a pickle.
    """
    return local_references(pickled, SourceScope.of_modules(find_references(pickled).modules))


def _pack(
    env_class: type,
    arguments: dict[str, object],
    explicit: tuple[ModuleType, ...],
    dependencies: tuple[str, ...],
    *,
    auto_local_modules: bool,
) -> bytes:
    scope = SourceScope.of_modules([env_class.__module__, *(module.__name__ for module in explicit)])

    def pickle_again() -> bytes:
        try:
            return serialize((env_class, arguments))
        except Exception as error:
            culprit = blame(env_class, arguments)
            raise BundlingError(
                f"Failed to serialize {_name(env_class)}: {type(error).__name__}: {error}."
                + (f" The cause is {culprit}." if culprit else "")
                + " Make such objects (clients, locks, open files) when they are first needed instead."
            ).by("serialize") from error

    with capture_session(explicit, scope) as session:
        pickled = pickle_again()
        if auto_local_modules:
            pickled = capture_local_modules(pickled, pickle_again, session, scope)
        _guard(env_class, pickled, explicit, scope, session, DeclaredModules(dependencies))
    return pickled


def _guard(
    env_class: type,
    pickled: bytes,
    explicit: tuple[ModuleType, ...],
    scope: SourceScope,
    session: CaptureSession,
    declared: DeclaredModules,
) -> None:
    references = find_references(pickled)
    captured = [name for name in references.modules if session.is_by_value(name)]
    refuse_local_references(references, scope, registered=explicit, captured=captured)
    refuse_external_source(
        references, scope, declared=[name for name in references.modules if name in declared], captured=captured
    )
    refuse_delayed_imports(
        [
            one
            for one in reachable_imports(env_class, session.is_by_value)
            if (scope.is_project_local(one.module) or scope.is_external_source(one.module))
            and one.module not in declared
        ]
    )
    warn_of_prompt_references(references)


def _check_env_class(env_class: object) -> None:
    from benchmax.envs.environment import Environment

    if not isinstance(env_class, type) or not issubclass(env_class, Environment):
        raise BundlingError(
            f"{env_class!r} does not implement benchmax.envs.Environment. Pass a class that derives from it."
        )
    if env_class is Environment:
        raise BundlingError("Environment itself cannot be bundled: it does not implement anything. Pass a subclass.")
    abstract = sorted(getattr(env_class, "__abstractmethods__", ()))
    if abstract:
        raise BundlingError(f"{_name(env_class)} has unimplemented abstract methods: {', '.join(abstract)}.")


def _check_local_modules(local_modules: object) -> tuple[ModuleType, ...]:
    if local_modules is None:
        return ()
    if not isinstance(local_modules, Iterable) or isinstance(local_modules, (str, ModuleType)):
        raise BundlingError(f"local_modules must be a list of module objects, got {local_modules!r}.")
    modules = tuple(local_modules)
    for module in modules:
        if not isinstance(module, ModuleType):
            raise BundlingError(f"local_modules must hold module objects, got {module!r}. Import it and pass it.")
    return modules


def _check_constructor_args(constructor_args: object) -> dict[str, object]:
    if constructor_args is None:
        return {}
    if not isinstance(constructor_args, Mapping) or not all(isinstance(key, str) for key in constructor_args):
        raise BundlingError(
            f"constructor_args must map parameter names to values, got {type(constructor_args).__name__}: "
            f"{constructor_args!r}."
        )
    return dict(constructor_args)


def _source_of(env_class: type) -> str | None:
    try:
        source = inspect.getsource(env_class)
        first = ast.parse(textwrap.dedent(source)).body[0]
    except (OSError, TypeError, ValueError, SyntaxError, IndexError):
        # made by exec, typed into a prompt, or a file that is gone
        return None
    # for a class made by exec, Python 3.13 returns whatever stands at that line of the module's file
    return source if isinstance(first, ast.ClassDef) and first.name == env_class.__name__ else None


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
