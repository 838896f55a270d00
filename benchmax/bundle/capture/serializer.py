"""One pickle of an environment, with chosen modules by value.

Which modules go by value is a process-wide registry of cloudpickle. A session holds a lock for as long as its
entries stand and takes them out again, whatever happens.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import ModuleType
from typing import Final, Protocol, TypeAlias

from benchmax.bundle.capture.sources import SourceScope

_registry_lock: Final = threading.RLock()

_Reducer: TypeAlias = Callable[..., tuple[object, ...]]

# facts about the author's machine that a module made from a pickle has no use for; loaders may not even pickle
_LEFT_BEHIND: Final = frozenset({"__spec__", "__loader__", "__cached__"})

logger = logging.getLogger("benchmax.bundle")


class _Cloudpickle(Protocol):
    """What is used of cloudpickle, which has no type hints of its own."""

    Pickler: type[_Pickler]

    def register_pickle_by_value(self, module: ModuleType) -> None: ...
    def unregister_pickle_by_value(self, module: ModuleType) -> None: ...
    def list_registry_pickle_by_value(self) -> set[str]: ...


class _Pickler(Protocol):
    dispatch_table: MutableMapping[type, _Reducer]

    def __init__(self, file: io.BytesIO, /) -> None: ...
    def dump(self, value: object, /) -> object: ...


class CaptureSession:
    """The by-value registrations of one dump; made by `capture_session`."""

    def __init__(self, scope: SourceScope) -> None:
        self._scope = scope
        self._registered: list[ModuleType] = []
        self._imported: dict[str, ModuleType] = {}

    def register(self, module: ModuleType) -> None:
        """Pickle the functions and classes of a module by value from now on."""
        cloudpickle = _cloudpickle()
        if module.__name__ not in sys.modules or module.__name__ in cloudpickle.list_registry_pickle_by_value():
            # the first kind goes by value anyway; the second is somebody else's entry and must outlive this session
            return
        cloudpickle.register_pickle_by_value(module)
        self._registered.append(module)

    def capture(self, name: str) -> None:
        """Import a module and register it. One that cannot be imported stays a reference."""
        module = sys.modules.get(name) or self._import(name)
        if module is not None:
            self.register(module)

    def is_by_value(self, name: str) -> bool:
        """Whether a module, or a package it lies in, goes by value."""
        # cloudpickle never takes __main__ for importable
        registry = _cloudpickle().list_registry_pickle_by_value() | {"__main__"}
        while name:
            if name in registry:
                return True
            name = name.rpartition(".")[0]
        return False

    def undo(self) -> None:
        """Take back every registration and every project module that was imported only for the capture."""
        cloudpickle = _cloudpickle()
        for module in self._registered:
            if module.__name__ in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(module)
        for name, module in self._imported.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
                _unbind(name, module)

    def _import(self, name: str) -> ModuleType | None:
        before = set(sys.modules)
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
            # stays a reference, which the guards report
            logger.debug("could not import %s to capture it: %r", name, error)
            return None
        finally:
            # installed packages stay loaded: taking out extension modules would break the next import of them
            for fresh in set(sys.modules) - before:
                module = sys.modules.get(fresh)
                if module is not None and self._scope.is_project_local(fresh):
                    self._imported[fresh] = module


@contextmanager
def capture_session(local_modules: Iterable[ModuleType], scope: SourceScope) -> Iterator[CaptureSession]:
    """Hold the registry for one dump, beginning with the modules the author named, and leave it as it was found."""
    with _registry_lock:
        session = CaptureSession(scope)
        try:
            for module in local_modules:
                session.register(module)
            yield session
        finally:
            session.undo()


def serialize(value: object) -> bytes:
    """Pickle a value with cloudpickle.

    Raises:
        Exception: whatever an object on the way raises.
    """
    buffer = io.BytesIO()
    _pickler_class()(buffer).dump(value)
    return buffer.getvalue()


def reducers() -> Mapping[type, Callable[..., object]]:
    """Return how bundles pickle objects of types that have a rule of their own."""
    return _pickler_class().dispatch_table


@functools.cache
def _pickler_class() -> type[_Pickler]:
    """Return cloudpickle's pickler with modules made first and filled afterwards.

    As cloudpickle does it, a module travels as an argument of the call that makes it, so a module that reaches
    itself (a package whose module says `import package.sibling`) recurses without end. The result is read by any
    cloudpickle: the call it knows, with nothing to fill in, and then an ordinary state.
    """
    cloudpickle = _cloudpickle()
    by_cloudpickle = cloudpickle.Pickler.dispatch_table[ModuleType]

    def reduce_module(module: ModuleType) -> tuple[object, ...]:
        match reduced := by_cloudpickle(module):
            case (make, (str() as name, dict() as content)):
                return make, (name, {}), {key: value for key, value in content.items() if key not in _LEFT_BEHIND}
            case _:
                return reduced

    ours: MutableMapping[type, _Reducer] = {ModuleType: reduce_module}
    if sys.version_info < (3, 12):
        ours[functools.cached_property] = _reduce_cached_property
    table = ChainMap(ours, cloudpickle.Pickler.dispatch_table)
    return type("BundlePickler", (cloudpickle.Pickler,), {"dispatch_table": table})


def _reduce_cached_property(accessor: functools.cached_property[object]) -> tuple[object, ...]:
    # before Python 3.12 each one holds a lock, which cannot be pickled and need not be
    return functools.cached_property, (accessor.func,), {"attrname": accessor.attrname}


def _unbind(name: str, module: ModuleType) -> None:
    parent, _, child = name.rpartition(".")
    if parent and getattr(sys.modules.get(parent), child, None) is module:
        delattr(sys.modules[parent], child)


def _cloudpickle() -> _Cloudpickle:
    # not at import: who only reads metadata must not be able to unpickle by accident
    import cloudpickle  # type: ignore[import-untyped]

    module: _Cloudpickle = cloudpickle
    return module
