"""Which functions of captured source can run remotely, followed from the environment class by name.

Followed: the class's own methods and accessors, what their code names as globals, defaults and closures. Not
followed: base classes as such, containers, and objects that only wrap a function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import TypeAlias, TypeGuard

from benchmax.bundle.capture.imports import DelayedImport, delayed_imports, nested_codes

Traveller: TypeAlias = FunctionType | type | ModuleType


def reachable_imports(env_class: type, is_captured: Callable[[str], bool]) -> Iterator[DelayedImport]:
    """Yield the delayed imports in everything the environment class can reach.

    Args:
        env_class: Where to begin; searched whether or not its module is captured.
        is_captured: Whether the module of that name goes by value.
    """
    home = env_class.__module__
    pending: list[Traveller] = [env_class]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, FunctionType):
            package = package_of(current)
            for code in nested_codes(current.__code__):
                yield from delayed_imports(code, package)
            found = _named_by_function(current)
        elif isinstance(current, ModuleType):
            found = _defined_in_module(current)
        else:
            found = _functions_of_class(current)
        pending.extend(item for item in found if _can_travel(item) and _travels(item, home, is_captured))


def _can_travel(item: object) -> TypeGuard[Traveller]:
    # isinstance would ask lazy proxies for their class, and some raise
    return issubclass(type(item), (FunctionType, type, ModuleType))


def _travels(item: Traveller, home: str, is_captured: Callable[[str], bool]) -> bool:
    if isinstance(item, ModuleType):
        return is_captured(item.__name__)
    name = _module_of(item)
    return name is not None and (name == home or is_captured(name))


def _functions_of_class(cls: type) -> Iterator[object]:
    for attribute in vars(cls).values():
        if isinstance(attribute, (staticmethod, classmethod)):
            yield attribute.__func__
        elif isinstance(attribute, property):
            yield from (attribute.fget, attribute.fset, attribute.fdel)
        elif isinstance(attribute, FunctionType):
            yield attribute


def _defined_in_module(module: ModuleType) -> Iterator[object]:
    for item in list(vars(module).values()):
        if _can_travel(item) and not isinstance(item, ModuleType) and _module_of(item) == module.__name__:
            yield item


def _named_by_function(function: FunctionType) -> Iterator[object]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # not assigned yet
            continue
    for code in nested_codes(function.__code__):
        yield from _named_globals(function, code)


def _named_globals(function: FunctionType, code: CodeType) -> Iterator[object]:
    for name in code.co_names:
        value = function.__globals__.get(name)
        yield value
        if _can_travel(value) and isinstance(value, ModuleType):
            yield from _named_submodules(value.__name__, set(code.co_names))


def _named_submodules(package: str, names: set[str]) -> Iterator[object]:
    # `package.part.f()` names the module package.part through the global `package`
    for name in names:
        part = sys.modules.get(f"{package}.{name}")
        if isinstance(part, ModuleType):
            yield part
            yield from _named_submodules(part.__name__, names)


def _module_of(item: Traveller) -> str | None:
    name = getattr(item, "__module__", None)
    return name if isinstance(name, str) else None


def package_of(function: FunctionType) -> str:
    """Return the package of a function's module, to resolve relative imports; empty outside of any."""
    package = function.__globals__.get("__package__")
    if isinstance(package, str) and package:
        return package
    name = str(function.__globals__.get("__name__", ""))
    return name if "__path__" in function.__globals__ else name.rpartition(".")[0]
