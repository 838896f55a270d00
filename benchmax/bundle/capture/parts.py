"""What a function or a class takes along when it is pickled by value, each part with the words that lead to it."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Final

from benchmax.bundle.capture.imports import nested_codes

_OF_EVERY_CLASS: Final = frozenset(
    {
        "__dict__", "__weakref__", "_abc_impl", "__module__", "__doc__", "__qualname__", "__firstlineno__",
        "__static_attributes__", "__abstractmethods__", "__parameters__",
    }
)  # fmt: skip
_GLOBAL_CODES: Final = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"})


def parts_of_class(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the attributes of a class and its bases."""
    for name, attribute in list(vars(cls).items()):
        if isinstance(attribute, (staticmethod, classmethod)):
            yield f".{name}", attribute.__func__
        elif isinstance(attribute, property):
            yield from ((f".{name}", part) for part in (attribute.fget, attribute.fset, attribute.fdel) if part)
        elif name not in _OF_EVERY_CLASS:
            yield f".{name}", attribute
    yield from ((f" → base {base.__qualname__}", base) for base in cls.__bases__)


def parts_of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function closes over, its globals, its defaults, its annotations and its own attributes."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f" → closure[{name!r}]", cell.cell_contents
        except ValueError:
            # not assigned yet
            continue
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield f" → globals[{name!r}]", function.__globals__[name]
    yield from ((f" → default[{index}]", item) for index, item in enumerate(function.__defaults__ or ()))
    yield from ((f" → default[{name!r}]", item) for name, item in (function.__kwdefaults__ or {}).items())
    yield from ((f" → annotation[{name!r}]", item) for name, item in function.__annotations__.items())
    yield from ((f".{name}", item) for name, item in vars(function).items())


def global_names(code: CodeType) -> list[str]:
    """Return the names that code and what is nested in it uses as globals, in order."""
    names: dict[str, None] = {}
    for nested in nested_codes(code):
        for instruction in dis.get_instructions(nested):
            if instruction.opname in _GLOBAL_CODES:
                names[str(instruction.argval)] = None
    return list(names)


def constant_texts(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yield the texts that code and what is nested in it loads as constants, with their lines; docstrings are none."""
    for nested in nested_codes(code):
        for instruction in dis.get_instructions(nested):
            if instruction.opname == "LOAD_CONST":
                line = (instruction.positions.lineno if instruction.positions else None) or 0
                value = instruction.argval
                for item in value if isinstance(value, (tuple, frozenset)) else (value,):
                    if isinstance(item, str):
                        yield item, line
