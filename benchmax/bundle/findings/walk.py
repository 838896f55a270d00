"""Everything that a bundle's pickle takes along, found by looking: each thing with the path and the line it is held by.

Objects are asked how they pickle, as pickling asks them, but nothing is written, so that one that cannot be pickled
does not hide the next. Nothing is imported, and no class or module is changed.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import io
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Final, NoReturn, TypeAlias, TypeVar

from benchmax.bundle.capture.parts import constant_texts, parts_of_class, parts_of_function
from benchmax.bundle.capture.serializer import reducers, serialize
from benchmax.bundle.findings.places import Places
from benchmax.bundle.findings.travel import Travel

MAX_NODES: Final = 100_000
"""What is held by more objects than this is looked at no further: a report has to come in seconds."""

MAX_PATH: Final = 400

SPELLED_OUT_BYTES: Final = 64 * 1024
"""Plain data up to this size is looked at piece by piece, so that what is found in it has a path; above, as a whole."""

_ATOMS: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, type(...), type(NotImplemented)}
)
_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})

_Kind = TypeVar("_Kind")

Parts: TypeAlias = Iterator[tuple[str, object]]


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """The name in the author's source by which something is held.

    Args:
        path: Path to it from the environment class.
        file: File that binds it, empty for constructor arguments.
        line: The line that binds it; 0 when unknown.
        owner: The module, or the constructor argument, whose share of the pickle it is.
        home: Name of the module it is bound in, empty for constructor arguments.
    """

    path: str
    file: str
    line: int
    owner: str
    home: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that travels: a value, or a constant in code.

    Args:
        path: The path to it.
        text: The text; bytes are read as Latin-1.
        file: File with the line that has it, empty for constructor arguments.
        line: That line; 0 when unknown.
        anchor: By what name it is held; `None` for a constant.
        home: Name of the module it belongs to.
    """

    path: str
    text: str
    file: str
    line: int
    anchor: Anchor | None
    home: str


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One object that travels.

    Args:
        path: The path to it.
        value: The object.
        anchor: By what name it is held.
    """

    path: str
    value: object
    anchor: Anchor


class _NotPlain(Exception):  # noqa: N818 - a signal, never an error
    pass


class _PlainPickler(pickle.Pickler):
    """Pickles what consists of built-in types alone."""

    def reducer_override(self, _value: object, /) -> NoReturn:
        raise _NotPlain


class Walk:
    """The objects of one bundle, sorted by what becomes of them.

    Args:
        env_class: The environment class.
        constructor_args: Its arguments.
        travel: Says what goes by value.
        watched: Texts to look for in data that is too large to be spelled out, by name.
    """

    def __init__(
        self, env_class: type, constructor_args: Mapping[str, object], travel: Travel, watched: Mapping[str, bytes]
    ) -> None:
        self.places = Places()
        self.travel = travel
        self.nodes: list[Node] = []
        """Everything, nearest first; references are not among it."""
        self.references: dict[str, dict[str, Node]] = {}
        """By module that has to be imported, the names asked of it and who asks; the module itself is the name ''."""
        self.stuck: list[tuple[Node, Exception]] = []
        """What cannot be pickled, and why."""
        self.by_name: list[tuple[Node, str]] = []
        """What pickles as a name in a module that no other process will have."""
        self.spotted: list[tuple[Node, str]] = []
        """Large data with a watched text in it, and the text's name."""
        self.sizes: Counter[str] = Counter()
        """Bytes by owner, near enough."""
        self.anchored: Counter[Anchor] = Counter()
        """Bytes of data by the name that holds it."""
        self.complete = True
        """Whether everything was looked at."""
        self._watched = watched
        # holds what it has seen: the identity of an object that is gone may be another's
        self._seen: dict[int, object] = {}
        self._texts: set[int] = set()
        self._pending: deque[Node] = deque()
        self._reducers = reducers()
        anchor = self._anchor_of_class(env_class.__qualname__, env_class)
        self._pending.append(Node(env_class.__qualname__, env_class, anchor))
        for name, value in constructor_args.items():
            path = f"constructor_args[{name!r}]"
            self._pending.append(Node(path, value, Anchor(path, "", 0, path)))
        while self._pending:
            if len(self.nodes) >= MAX_NODES:
                self.complete = False
                break
            self._visit(self._pending.popleft())

    @property
    def functions(self) -> Iterator[tuple[Node, FunctionType]]:
        """The functions that go by value."""
        return ((node, node.value) for node in self.nodes if type(node.value) is FunctionType)

    @property
    def classes(self) -> Iterator[tuple[Node, type]]:
        """The classes that go by value."""
        return ((node, node.value) for node in self.nodes if _is_class(node.value) and isinstance(node.value, type))

    @functools.cached_property
    def texts(self) -> tuple[Text, ...]:
        """Every text among the values and in the code."""
        found: list[Text] = []
        for node in self.nodes:
            value, anchor = node.value, node.anchor
            if type(value) in (bytes, bytearray) and isinstance(value, (bytes, bytearray)):
                value = value.decode("latin-1")
            if type(value) is str:
                found.append(Text(node.path, value, anchor.file, anchor.line, anchor, anchor.home))
        for node, function in self.functions:
            for text, line in constant_texts(function.__code__):
                file = function.__code__.co_filename
                found.append(Text(f"{node.path} → constant", text, file, line, None, function.__module__ or ""))
        return tuple(found)

    def _visit(self, node: Node) -> None:
        value = node.value
        kind = type(value)
        if kind in _ATOMS:
            self.nodes.append(node)
            # a text that occurs again is pickled as a number; whatever holds it keeps it alive
            known = id(value) in self._texts
            if kind in (str, bytes):
                self._texts.add(id(value))
            self._count(node, 2 if known else _atom_size(value))
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if _is_class(value) or kind is FunctionType or issubclass(kind, ModuleType):
            self._visit_source(node)
        elif kind in _CONTAINERS:
            self._visit_container(node)
        else:
            self._visit_object(node)

    def _visit_source(self, node: Node) -> None:
        value = node.value
        assert isinstance(value, (FunctionType, type, ModuleType))
        if module := self.travel.reference(value):
            name = "" if isinstance(value, ModuleType) else value.__qualname__
            self.references.setdefault(module, {}).setdefault(name, node)
            return
        self.nodes.append(node)
        if isinstance(value, FunctionType):
            self._count(node, len(serialize(value.__code__)), owner=value.__module__ or node.anchor.owner)
            self._push_function(node, value)
        elif isinstance(value, ModuleType):
            for name, item in list(vars(value).items()):
                if not (name.startswith("__") and name.endswith("__")):
                    file = str(getattr(value, "__file__", None) or "")
                    self._push(node, f".{name}", item, file, self.places.of_global(file, name), value.__name__)
        else:
            self._count(node, 0, owner=value.__module__)
            file = _file_of(value)
            for label, item in parts_of_class(value):
                name = label[1:] if label.startswith(".") else ""
                line = self.places.of_attribute(file, value.__qualname__, name) if name else 0
                line = line or self.places.of_class(file, value.__qualname__)
                self._push(node, label, item, file, line, value.__module__)

    def _push_function(self, node: Node, function: FunctionType) -> None:
        file, first = function.__code__.co_filename, function.__code__.co_firstlineno
        home = str(function.__globals__.get("__file__") or file)
        for label, item in parts_of_function(function):
            line = first
            if label.startswith(" → globals["):
                line = self.places.of_global(home, label[len(" → globals['") : -2]) or first
                self._push(node, label, item, home, line, function.__module__)
            else:
                self._push(node, label, item, file, line, function.__module__)

    def _push(self, node: Node, label: str, value: object, file: str, line: int, module: str | None) -> None:
        """Add something that the author's source names."""
        path = _joined(node.path, label)
        owner = module or node.anchor.owner
        anchor = Anchor(path, file, line, owner, owner) if self.travel.is_authors(file) else node.anchor
        self._pending.append(Node(path, value, anchor))

    def _visit_container(self, node: Node) -> None:
        try:
            data = _plainly_pickled(node.value)
        except RecursionError as error:
            self.nodes.append(node)
            self.stuck.append((node, error))
            return
        if data is not None and len(data) > SPELLED_OUT_BYTES:
            self.nodes.append(node)
            self._count(node, len(data))
            self.spotted.extend((node, name) for name, text in self._watched.items() if text in data)
            return
        self.nodes.append(node)
        self._count(node, 2)
        value = node.value
        if isinstance(value, dict):
            for key, item in value.items():
                # a key is named by itself
                self._pending.append(Node(_joined(node.path, f"[{_short(key)}]"), item, node.anchor))
                if type(key) not in _ATOMS:
                    self._pending.append(Node(_joined(node.path, " → key"), key, node.anchor))
                else:
                    self._count(node, _atom_size(key))
        elif isinstance(value, (list, tuple)):
            self._pending.extend(Node(_joined(node.path, f"[{i}]"), item, node.anchor) for i, item in enumerate(value))
        elif isinstance(value, (set, frozenset)):
            self._pending.extend(Node(_joined(node.path, "{…}"), item, node.anchor) for item in value)

    def _visit_object(self, node: Node) -> None:
        value = node.value
        if type(value) is pickle.PickleBuffer:
            self.nodes.append(node)
            self._count(node, value.raw().nbytes)
            return
        if type(value) is BuiltinFunctionType and isinstance(module := getattr(value, "__self__", None), ModuleType):
            self.references.setdefault(module.__name__, {}).setdefault(value.__qualname__, node)
            return
        self.nodes.append(node)
        try:
            reduced = self._reduce(value)
        except Exception as error:  # noqa: BLE001 - pickling would meet the same one, whatever it is
            self.stuck.append((node, error))
            return
        if isinstance(reduced, str):
            self._visit_named(node, reduced)
            return
        self._count(node, 8)
        for label, part in _parts_of_reduced(value, reduced):
            self._pending.append(Node(_joined(node.path, label), part, node.anchor))

    def _reduce(self, value: object) -> str | tuple[object, ...]:
        reducer: Callable[[object], object] | None = self._reducers.get(type(value)) or copyreg.dispatch_table.get(
            type(value)
        )
        reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if reducer is None else reducer(value)
        if not isinstance(reduced, (str, tuple)):
            raise TypeError(f"__reduce_ex__ must return a string or tuple, not {type(reduced).__name__}")
        return reduced

    def _visit_named(self, node: Node, name: str) -> None:
        module = getattr(node.value, "__module__", None)
        if not isinstance(module, str):
            return
        if self.travel.is_by_value(module):
            self.by_name.append((node, module))
        else:
            self.references.setdefault(module, {}).setdefault(name, node)

    def _count(self, node: Node, size: int, *, owner: str | None = None) -> None:
        self.sizes[owner or node.anchor.owner] += size
        if owner is None:
            self.anchored[node.anchor] += size

    def _anchor_of_class(self, path: str, cls: type) -> Anchor:
        file = _file_of(cls)
        return Anchor(path, file, self.places.of_class(file, cls.__qualname__), cls.__module__, cls.__module__)


def _joined(path: str, label: str) -> str:
    path += label
    # what is nested without end must not have paths without end
    return path if len(path) <= MAX_PATH else f"{path[: MAX_PATH // 2]}…{path[1 - MAX_PATH // 2 :]}"


def as_instance(value: object, kind: type[_Kind]) -> _Kind | None:
    """Return a value that is of a type, or `None`; unlike `isinstance`, without asking the value for its class."""
    return value if issubclass(type(value), kind) and isinstance(value, kind) else None


def _is_class(value: object) -> bool:
    return issubclass(type(value), type)


def _file_of(cls: type) -> str:
    # not by inspect, which may import; functions know their file, classes only their module
    for attribute in vars(cls).values():
        function = getattr(attribute, "__func__", attribute)
        if type(function) is FunctionType and function.__module__ == cls.__module__:
            return str(function.__code__.co_filename)
    return str(getattr(sys.modules.get(cls.__module__), "__file__", None) or "")


def _plainly_pickled(value: object) -> bytes | None:
    buffer = io.BytesIO()
    try:
        _PlainPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    except _NotPlain:
        return None
    return buffer.getvalue()


def _atom_size(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) + 2
    if isinstance(value, (bytes, bytearray)):
        return len(value) + 2
    return 2 + (value.bit_length() // 8 if isinstance(value, int) else 0)


def _short(key: object) -> str:
    text = repr(key) if type(key) in _ATOMS else f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:59] + "…"


def _parts_of_reduced(value: object, reduced: tuple[object, ...]) -> Parts:
    partial = as_instance(value, functools.partial)
    if partial is not None:
        yield from ((".func", partial.func), (".args", partial.args), (".keywords", partial.keywords))
        return
    make, arguments, state, items, pairs = (*reduced, None, None, None, None, None)[:5]
    yield f" → {getattr(make, '__name__', 'reduce')}", make
    for index, argument in enumerate(arguments if isinstance(arguments, tuple) else ()):
        if not isinstance(argument, CodeType):
            yield f"({index})", argument
    yield from _parts_of_state(value, state)
    yield from ((f"[{index}]", item) for index, item in enumerate(_listed(items)))
    for pair in _listed(pairs):
        if isinstance(pair, tuple) and len(pair) == 2:
            yield f"[{_short(pair[0])}]", pair[1]


def _parts_of_state(value: object, state: object) -> Parts:
    if isinstance(state, tuple) and len(state) == 2 and all(isinstance(half, (dict, type(None))) for half in state):
        # instance attributes and slots
        for half in state:
            yield from _parts_of_state(value, half)
    elif isinstance(state, dict):
        yield from ((f".{name}", item) for name, item in state.items())
    elif isinstance(state, list) and dataclasses.is_dataclass(value):
        yield from ((f".{one.name}", item) for one, item in zip(dataclasses.fields(value), state, strict=False))
    elif state is not None:
        yield " → state", state


def _listed(items: object) -> Iterator[object]:
    # an iterator over what the object holds now, as pickling takes it
    return iter(items) if isinstance(items, Iterator) else iter(())
