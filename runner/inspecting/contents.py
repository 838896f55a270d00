"""What travels by value: classes and functions, as far as they can be told without making them.

A bundle carries the code of its functions, not their text. What can be told of code is its names, its signature and its
constants; what it does with them is in instructions of one Python version, which are not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runner.inspecting.bounds import CODE_DEPTH, MAX_CONTENTS, MAX_NAMES, SHOWN_CHARS, SHOWN_DOC_CHARS, SHOWN_MEMBERS
from runner.inspecting.values import Call, Global, Pairs, Value, made_by, members, pairs, shown
from runner.inspecting.verdicts import MAKES_CLASS, MAKES_FUNCTION, REDUCE
from runner.text import bounded, one_line

_CODE_ARGUMENTS: Final = 18
"""What a code object of Python 3.11 and later is made from."""

_WRAPPERS: Final = frozenset(
    {"builtins.staticmethod", "builtins.classmethod", "builtins.property", "functools.cached_property"}
)
_SUBSCRIBES: Final = frozenset({"operator.getitem", "_operator.getitem", "types.GenericAlias"})
_VARARGS, _VARKEYWORDS, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x80, 0x200


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContents:
    """A function that is in the pickle.

    Args:
        name: Its qualified name.
        module: The module it was defined in.
        signature: Its signature, such as `async def run(self, size: int = 3)`.
        doc: Its docstring, empty when there is none.
        file: The file it was defined in on its author's machine, and the line in it; empty and 0 when unknown.
        line: See `file`.
        names: Names that its code uses: globals, attributes and what it imports, unsorted as it has them.
        texts: Texts among its constants.
    """

    name: str
    module: str
    signature: str
    doc: str
    file: str
    line: int
    names: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassContents:
    """A class that is in the pickle.

    Args:
        name: Its name.
        module: The module it was defined in.
        bases: Its base classes.
        doc: Its docstring, empty when there is none.
        functions: Its methods, those inside properties and the like included.
        attributes: Its other attributes, each as `name = value`.
    """

    name: str
    module: str
    bases: tuple[str, ...]
    doc: str
    functions: tuple[FunctionContents, ...]
    attributes: tuple[str, ...]


def classes_of(made: Iterable[Call]) -> tuple[ClassContents, ...]:
    """Describe the classes among what was made by value."""
    return tuple(_class(one) for one, _ in zip(made, range(MAX_CONTENTS), strict=False))


def functions_of(made: Sequence[Call], classes: Iterable[Call]) -> tuple[FunctionContents, ...]:
    """Describe the functions that are in no class."""
    methods = {id(function) for one in classes for _, function in _methods(one)}
    free = (one for one in made if id(one) not in methods)
    return tuple(_function(one) for one, _ in zip(free, range(MAX_CONTENTS), strict=False))


def names_in(made: Iterable[Call]) -> Iterator[str]:
    """Return the names that the code of functions uses, some of them more than once."""
    for one in made:
        yield from _names(_code(one))


def class_name(value: Value) -> str:
    """Return the name of a class, by value or imported; empty when it is none."""
    if isinstance(value, Global):
        return one_line(value.path)
    return _class(value).name if isinstance(value, Call) and made_by(value) in MAKES_CLASS else ""


def _class(made: Call) -> ClassContents:
    given = members(made.arguments)
    if made_by(made).endswith("._make_skeleton_enum"):
        name, bases, module = _at(given, 1), _at(given, 0), _at(given, 4)
    else:
        name, bases, module = _at(given, 1), _at(given, 2), pairs(_at(given, 3)).get("__module__")
    attributes = _attributes(made)
    found = [*_methods(made)]
    methods = {key for key, _ in found}
    return ClassContents(
        name=_text(name),
        module=_text(module),
        bases=tuple(shown(base) for base in members(bases)),
        doc=_doc(attributes.get("__doc__")),
        functions=tuple(_function(function) for _, function in found),
        attributes=tuple(
            one_line(f"{key} = {shown(value)}", SHOWN_CHARS)
            for key, value in attributes.items()
            if key not in methods and not (key.startswith("__") and key.endswith("__")) and key != "_abc_impl"
        )[:MAX_NAMES],
    )


def _attributes(made: Call) -> dict[str, Value]:
    return pairs(_at(members(made.state), 0))


def _methods(made: Call) -> Iterator[tuple[str, Call]]:
    """Return the functions of a class with their names, at most `MAX_CONTENTS`."""
    count = 0
    for key, value in _attributes(made).items():
        for one in _inside(value):
            count += 1
            if count <= MAX_CONTENTS:
                yield key, one


def _inside(value: Value) -> list[Call]:
    """Return the functions that an attribute is, or is made from."""
    parts = [value]
    if isinstance(value, Call) and made_by(value) in _WRAPPERS:
        # some are handed their function, others filled with it
        parts = [*members(value.arguments), *pairs(value.state).values()]
    return [one for one in parts if isinstance(one, Call) and made_by(one) in MAKES_FUNCTION]


def _function(made: Call) -> FunctionContents:
    code = _code(made)
    states = members(made.state)
    state = {**pairs(_at(states, 0)), **pairs(_at(states, 1))}
    name = _text(state.get("__qualname__")) or _text(_at(code, 12)) or _text(_at(code, 11)) or "?"
    line = _at(code, 13)
    texts = (one for one in members(_at(code, 7)) if isinstance(one, str))
    return FunctionContents(
        name=name,
        module=_text(state.get("__module__")),
        signature=_signature(name.rpartition(".")[2], code, state),
        doc=_doc(state.get("__doc__")),
        file=_file(made, code),
        line=line if isinstance(line, int) else 0,
        names=tuple(dict.fromkeys(one_line(one) for one, _ in zip(_names(code), range(MAX_NAMES), strict=False))),
        texts=tuple(one_line(text, SHOWN_CHARS) for text, _ in zip(texts, range(MAX_NAMES), strict=False)),
    )


def _file(made: Call, code: list[Value]) -> str:
    file = _text(_at(code, 10))
    # cloudpickle leaves it out of the code; the function's globals have it
    return file if file and not file.startswith("<") else _text(pairs(_at(members(made.arguments), 1)).get("__file__"))


def _code(made: Call) -> list[Value]:
    return _code_arguments(_at(members(made.arguments), 0))


def _code_arguments(value: Value) -> list[Value]:
    given = members(value.arguments) if isinstance(value, Call) and made_by(value) == "types.CodeType" else []
    return given if len(given) == _CODE_ARGUMENTS else []


def _names(code: list[Value], depth: int = CODE_DEPTH) -> Iterator[str]:
    yield from (name for name in members(_at(code, 8)) if isinstance(name, str))
    if depth:
        for constant in members(_at(code, 7)):
            yield from _names(_code_arguments(constant), depth - 1)


def _signature(name: str, code: list[Value], state: dict[str, Value]) -> str:
    flags, count, only_positional, only_named = (_number(_at(code, index)) for index in (5, 0, 1, 2))
    variables = [_text(one) or "?" for one in members(_at(code, 9))]
    annotations, defaults = pairs(state.get("__annotations__")), members(state.get("__defaults__"))
    named_defaults = pairs(state.get("__kwdefaults__"))

    def parameter(variable: str, prefix: str = "", default: Value | None = None, *, has_default: bool = False) -> str:
        annotation = f": {_annotation(annotations[variable])}" if variable in annotations else ""
        equals = (" = " if annotation else "=") + shown(default, 60) if has_default else ""
        return f"{prefix}{variable}{annotation}{equals}"

    shown_parts = []
    for index, variable in enumerate(variables[:count]):
        place = index - (count - len(defaults))
        shown_parts.append(parameter(variable, default=_at(defaults, place), has_default=place >= 0))
        if index + 1 == only_positional:
            shown_parts.append("/")
    rest = count + only_named
    if flags & _VARARGS:
        shown_parts.append(parameter(_at_text(variables, rest), "*"))
    elif only_named:
        shown_parts.append("*")
    for variable in variables[count:rest]:
        shown_parts.append(
            parameter(variable, default=named_defaults.get(variable), has_default=variable in named_defaults)
        )
    if flags & _VARKEYWORDS:
        shown_parts.append(parameter(_at_text(variables, rest + bool(flags & _VARARGS)), "**"))
    inner = ", ".join(shown_parts) if code else "…"
    returns = f" -> {_annotation(annotations['return'])}" if "return" in annotations else ""
    word = "async def" if flags & (_COROUTINE | _ASYNC_GENERATOR) else "def"
    return one_line(f"{word} {name}({inner}){returns}", 3 * SHOWN_CHARS)


def _annotation(value: Value, depth: int = 4) -> str:
    if isinstance(value, str):
        return one_line(value, 80)
    if isinstance(value, Global):
        return "..." if value.name == "Ellipsis" else shown(value, 80).rpartition(".")[2]
    if isinstance(value, Call) and depth:
        inner, path = members(value.arguments), made_by(value)
        if path == "builtins.type":
            return "None"
        if path in REDUCE and len(inner) == 2:
            return one_line(" | ".join(_annotation(one, depth - 1) for one in members(inner[1])[:SHOWN_MEMBERS]), 80)
        if path in _SUBSCRIBES and len(inner) == 2:
            given = members(inner[1]) or [inner[1]]
            parts = [_annotation(one, depth - 1) for one in given[:SHOWN_MEMBERS]]
            return one_line(f"{_annotation(inner[0], depth - 1)}[{', '.join(parts)}]", 80)
    return shown(value, 80)


def _doc(value: Value) -> str:
    return bounded(value, SHOWN_DOC_CHARS) if isinstance(value, str) else ""


def _text(value: Value) -> str:
    return one_line(value) if isinstance(value, str) else ""


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _at(values: Sequence[Value], index: int) -> Value:
    return values[index] if 0 <= index < len(values) else None


def _at_text(values: Sequence[str], index: int) -> str:
    return values[index] if 0 <= index < len(values) else "?"


def arguments_of(value: Value) -> dict[str, str]:
    """Describe the constructor's arguments that a bundle holds, by name."""
    found = value.members if isinstance(value, Pairs) else []
    return {shown(key) if not isinstance(key, str) else one_line(key): shown(item) for key, item in found[:MAX_NAMES]}
