"""What is in a pickle besides what loading it would do: every value with the way to it, and imports that run later.

Nothing is executed. What could not be followed is not here; the overview says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from runner.inspecting.bounds import MAX_OPCODES
from runner.inspecting.machine import Machine
from runner.inspecting.opcodes import BrokenPickleError
from runner.inspecting.values import Call, Global, Group, Pairs, Value, made_by, members
from runner.inspecting.verdicts import MAKES_CLASS, MAKES_FUNCTION
from runner.inspecting.witness import Witness
from runner.text import one_line

MAX_VALUES: Final = 500_000
"""Values that are looked at; an inspected pickle keeps as many."""

CODE: Final = "types.CodeType"
_CODE_ARGUMENTS: Final = 18
_BYTECODE, _CONSTANTS, _NAMES, _QUALIFIED_NAME = 6, 7, 8, 12

_OPCODES: Final = {"3.11": (108, 144), "3.12": (108, 144), "3.13": (75, 71)}
"""By Python series, the numbers of the instruction that imports and of the one that lengthens its argument."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value in the pickle.

    Args:
        path: The way to it, such as `constructor_args['url']`, `Env.tag` or `Env.run_tool`.
        name: Its own name, if it has one: of an argument, an attribute or a key.
        value: What it is.
    """

    path: str
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class DelayedImport:
    """A module that a function imports when it runs."""

    module: str
    function: str


class Contents:
    """The values of a pickle.

    Args:
        pickled: The pickle, whatever it is.
    """

    def __init__(self, pickled: bytes) -> None:
        witness = Witness()
        machine = Machine(pickled, witness, max_opcodes=MAX_OPCODES)
        try:
            machine.run()
            held = members(machine.result)
        except BrokenPickleError:
            held = []
        self._env_class = held[0] if held else None
        self._arguments = held[1] if len(held) > 1 else None

    def values(self) -> Iterator[Found]:
        """Give every value once, constructor arguments first."""
        seen: set[int] = set()
        # last in, first out
        waiting = [Found("its class", "", self._env_class), Found("constructor_args", "", self._arguments)]
        count = 0
        while waiting and count < MAX_VALUES:
            found = waiting.pop()
            if isinstance(found.value, Global | Group | Pairs | Call):
                if id(found.value) in seen:
                    continue
                seen.add(id(found.value))
            count += 1
            yield found
            waiting += reversed([*_inside(found)])

    def delayed_imports(self, series: str) -> list[DelayedImport]:
        """Return the modules that functions import when they run, as far as their bytecode is kept.

        Args:
            series: The Python that it is for, such as `3.12`; of an unknown one nothing is told.
        """
        numbers = _OPCODES.get(series)
        if numbers is None:
            return []
        found: dict[DelayedImport, None] = {}
        for one in self.values():
            if isinstance(one.value, Call) and made_by(one.value) == CODE:
                given = members(one.value.arguments)
                for module in _imports(given, *numbers):
                    found[DelayedImport(one_line(module), _named(one.value) or one.path)] = None
        return [*found]


def _inside(found: Found) -> Iterator[Found]:
    value, path = found.value, found.path
    if isinstance(value, Group):
        for member in value.members:
            yield Found(path, found.name, member)
    elif isinstance(value, Pairs):
        for key, member in value.members:
            name = key if isinstance(key, str) else ""
            yield Found(path, "", key)
            yield Found(_below(path, name), name, member)
    elif isinstance(value, Call):
        path = _named(value) or path
        yield Found(path, found.name, value.callee)
        yield Found(path, found.name, value.arguments)
        yield Found(path, found.name, value.state)


def _below(path: str, name: str) -> str:
    if path.startswith("constructor_args"):
        return f"{path}[{one_line(name, 60)!r}]"
    # functions keep what they use by its name, classes what they have; neither names of the machinery
    return path if name.startswith("__") or not name.isidentifier() else f"{path.partition(' → ')[0]} → {name}"


def _named(call: Call) -> str:
    """Return the name of a function or class that a call makes; empty for anything else."""
    given = members(call.arguments)
    maker = made_by(call)
    if maker in MAKES_FUNCTION and given:
        code = given[0]
        return _named(code) if isinstance(code, Call) else ""
    if maker == CODE and len(given) == _CODE_ARGUMENTS:
        name = given[_QUALIFIED_NAME]
        return one_line(name) if isinstance(name, str) else ""
    if maker in MAKES_CLASS and len(given) > 1:
        return one_line(given[1]) if isinstance(given[1], str) else ""
    return ""


def _imports(code: list[Value], import_name: int, extended: int) -> Iterator[str]:
    """Give what one code object imports absolutely."""
    if len(code) != _CODE_ARGUMENTS or not isinstance(code[_BYTECODE], bytes):
        return
    bytecode, names, constants = code[_BYTECODE], members(code[_NAMES]), members(code[_CONSTANTS])
    assert isinstance(bytecode, bytes)
    argument, before, level = 0, 0, 0
    for position in range(0, len(bytecode) - 1, 2):
        argument = argument << 8 | bytecode[position + 1]
        if bytecode[position] == extended:
            continue
        if bytecode[position] == import_name and argument < len(names):
            name = names[argument]
            # how many packages up, and what is taken from the module, are loaded before it
            above = constants[level] if level < len(constants) else 0
            if isinstance(name, str) and name and above == 0:
                yield name
        level, before, argument = before, argument, 0
