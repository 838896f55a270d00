"""What a pickle would import when loaded, found by replaying it without importing or calling anything.

Every global of the pickle is replaced by an inert stand-in that accepts whatever the pickle does with it. So the
replay runs no code of the pickle, needs none of its modules, and cannot touch classes that live in this process.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from benchmax.bundle.errors import BundlingError

# the serializer's own reconstructors; wherever a bundle loads, cloudpickle is installed
_ALWAYS_THERE: Final = frozenset({"cloudpickle"})
_MODULE_GETTERS: Final = frozenset(
    {("cloudpickle", "subimport"), ("importlib", "import_module"), ("builtins", "__import__")}
)
# cloudpickle's constructors of what travels by value: position of the argument that tells its module, and the key in it
_BY_VALUE: Final[Mapping[str, tuple[int, str | None]]] = MappingProxyType(
    {
        "dynamic_subimport": (0, None),
        "_make_function": (1, "__name__"),
        "_make_skeleton_class": (3, "__module__"),
        "_make_skeleton_enum": (4, None),
    }
)


@dataclass(frozen=True, slots=True)
class References:
    """The modules a pickle refers to.

    Args:
        names: Module to the sorted qualified names asked of it; empty where only the module object is wanted.
        by_value: Modules of which something is contained in the pickle itself, sorted.
    """

    names: Mapping[str, tuple[str, ...]]
    by_value: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Every module that loading would import, sorted."""
        return tuple(sorted(self.names))


def find_references(pickled: bytes) -> References:
    """Return what loading the pickle would import.

    Raises:
        BundlingError: the bytes are not a pickle.
    """
    recorder = _RecordingUnpickler(pickled)
    try:
        recorder.load()
    except Exception as error:
        raise BundlingError(
            f"Cannot read the pickle ({len(pickled)} bytes): {type(error).__name__}: {error}. "
            "It is corrupt or was cut short."
        ) from error
    names = {name: tuple(sorted(wanted)) for name, wanted in sorted(recorder.found.items())}
    return References(names=MappingProxyType(names), by_value=tuple(sorted(recorder.by_value)))


class _Accepting(type):
    """Lets the one stand-in be called, instantiated and filled like whatever it stands for."""

    def __call__(cls, *_args: object, **_kwargs: object) -> type:
        return cls

    def __setitem__(cls, _key: object, _value: object) -> None:
        return None


class _StandIn(metaclass=_Accepting):
    """Stands for every global and every object made from one.

    It is a class, because the unpickler insists on classes where it makes instances.
    """

    def __new__(cls, *_args: object, **_kwargs: object) -> type[_StandIn]:  # type: ignore[misc]
        return cls

    @staticmethod
    def __setstate__(_state: object) -> None:
        return None

    @staticmethod
    def append(_item: object) -> None:
        return None

    @staticmethod
    def extend(_items: object) -> None:
        return None

    @staticmethod
    def add(_item: object) -> None:
        return None


class _RecordingUnpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.found: dict[str, set[str]] = {}
        self.by_value: set[str] = set()

    def find_class(self, module_name: str, global_name: str, /) -> Callable[..., type]:
        package = module_name.partition(".")[0]
        if package not in _ALWAYS_THERE:
            self.found.setdefault(module_name, set()).add(global_name)
        if (package, global_name) in _MODULE_GETTERS:
            return self._record_module
        if package in _ALWAYS_THERE and global_name in _BY_VALUE:
            return functools.partial(self._record_by_value, *_BY_VALUE[global_name])
        return _StandIn

    def persistent_load(self, _pid: object) -> type:
        return _StandIn

    def _record_module(self, name: object = "", *_args: object, **_kwargs: object) -> type:
        if isinstance(name, str) and name and not name.startswith("."):
            self.found.setdefault(name, set())
        return _StandIn

    def _record_by_value(self, position: int, key: str | None, /, *arguments: object) -> type:
        name = arguments[position] if position < len(arguments) else None
        if key is not None:
            name = name.get(key) if isinstance(name, dict) else None
        if isinstance(name, str):
            self.by_value.add(name)
        return _StandIn
