"""Which attribute made a pickle fail: the path from the environment class to the object that cannot travel."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Final

from benchmax.bundle.capture.parts import parts_of_class, parts_of_function
from benchmax.bundle.capture.serializer import serialize

_MAX_TRIES: Final = 400
"""Every try is a pickle; beyond this a shorter path is good enough."""


def blame(env_class: type, constructor_args: dict[str, object]) -> str:
    """Say where the object is that cannot be pickled, under the registrations of this moment.

    Returns:
        A path such as `Env.step → globals['client'] (httpx.Client), used in /p/env.py:12`; empty when there is none.
    """
    trail = _Trail()
    for label, value in (
        (env_class.__qualname__, env_class),
        *((f"constructor_args[{key!r}]", argument) for key, argument in constructor_args.items()),
    ):
        if trail.fails(value):
            return trail.follow(label, value)
    return ""


class _Trail:
    def __init__(self) -> None:
        self._tries = 0
        self._passed: list[object] = []

    def fails(self, value: object) -> bool:
        self._tries += 1
        try:
            serialize(value)
        except Exception:  # noqa: BLE001 - which one does not matter here
            return True
        return False

    def follow(self, path: str, value: object) -> str:
        self._passed.append(value)
        for label, child in _children(value):
            if self._tries >= _MAX_TRIES:
                break
            if not any(child is passed for passed in self._passed) and self.fails(child):
                return self.follow(path + label, child)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return f"{path} ({kind}){self._used_in()}"

    def _used_in(self) -> str:
        for value in reversed(self._passed):
            if type(value) is FunctionType and isinstance(value, FunctionType):
                return f", used in {value.__code__.co_filename}:{value.__code__.co_firstlineno}"
        return ""


def _children(value: object) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if issubclass(kind, type) and isinstance(value, type):
        yield from parts_of_class(value)
    elif kind is FunctionType and isinstance(value, FunctionType):
        yield from parts_of_function(value)
    elif kind is MethodType and isinstance(value, MethodType):
        yield from ((".__func__", value.__func__), (".__self__", value.__self__))
    elif issubclass(kind, ModuleType) and isinstance(value, ModuleType):
        yield from ((f".{name}", item) for name, item in list(vars(value).items()) if name != "__builtins__")
    elif issubclass(kind, dict) and isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif issubclass(kind, (list, tuple)) and isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif issubclass(kind, (set, frozenset)) and isinstance(value, (set, frozenset)):
        yield from (("{...}", item) for item in value)
    else:
        try:
            attributes = getattr(value, "__dict__", None)
        except Exception:  # noqa: BLE001 - what cannot be pickled may also refuse to be looked at
            return
        if isinstance(attributes, dict):
            yield from ((f".{name}", item) for name, item in list(attributes.items()))
