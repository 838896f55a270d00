"""Import statements inside functions, read from their bytecode.

Bytecode rather than source: it is there for lambdas and for classes made by `exec`, and it is what will run.
"""

from __future__ import annotations

import dis
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final, Literal, TypeAlias

# loads that push without looking at the stack; everything else is taken to compute something from its top
_PLAIN_LOADS: Final = (
    "LOAD_FAST",
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_CLOSURE",
    "LOAD_CONST",
    "LOAD_SMALL_INT",
    "PUSH_NULL",
)
_NO_EFFECT: Final = frozenset({"PRECALL", "KW_NAMES", "NOP", "EXTENDED_ARG", "CACHE"})
_JUMPS: Final = frozenset({*dis.hasjrel, *dis.hasjabs})


@dataclass(frozen=True, slots=True)
class DelayedImport:
    """An import that runs when its function is called.

    Args:
        module: Absolute dotted name.
        function: Qualified name of the function it stands in.
        file: File of that function, as compiled.
        line: Line of the import, 0 when unknown.
    """

    module: str
    function: str
    file: str
    line: int


def delayed_imports(code: CodeType, package: str) -> Iterator[DelayedImport]:
    """Yield the imports of one code object, without those of code nested in it.

    Import statements count, and calls of `__import__` or `import_module` with a literal name. Computed names and
    relative literals do not.

    Args:
        code: The function's code.
        package: Package of the function's module, to resolve relative imports; may be empty.
    """
    instructions = [one for one in dis.get_instructions(code) if one.opname not in {"EXTENDED_ARG", "CACHE"}]
    for position, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            names = _statement_modules(instructions, position, package)
        elif _loads_import_function(instruction):
            names = _literal_arguments(instructions, position + 1)
        else:
            continue
        line = (instruction.positions.lineno if instruction.positions else None) or 0
        for name in names:
            yield DelayedImport(name, code.co_qualname, code.co_filename, line)


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code nested in it: inner functions, lambdas, comprehensions, class bodies."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def _statement_modules(instructions: list[dis.Instruction], position: int, package: str) -> list[str]:
    name = str(instructions[position].argval)
    level, members = _import_operands(instructions, position)
    if level == 0:
        return [name]
    try:
        base = importlib.util.resolve_name("." * level + name, package)
    except ImportError:
        # outside any package; it fails for the author too
        return []
    if name:
        return [base]
    # `from . import h`: h may be a module of the package or a name in it
    return [base, *(f"{base}.{member}" for member in members if member != "*")]


def _import_operands(instructions: list[dis.Instruction], position: int) -> tuple[int, tuple[str, ...]]:
    # the compiler pushes level and names right before the import
    if position < 2:
        return 0, ()
    level, members = instructions[position - 2].argval, instructions[position - 1].argval
    return (
        level if isinstance(level, int) else 0,
        tuple(str(member) for member in members) if isinstance(members, tuple) else (),
    )


def _loads_import_function(instruction: dis.Instruction) -> bool:
    if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
        return instruction.argval in {"__import__", "import_module"}
    return instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"} and instruction.argval == "import_module"


# one stack entry above the called function: a literal string, or anything else
_Computed: TypeAlias = Literal[False]
_Entry: TypeAlias = str | _Computed


def _literal_arguments(instructions: list[dis.Instruction], start: int) -> list[str]:
    """Follow the stack above a just loaded function up to its call; return the literal strings passed."""
    stack: list[_Entry] = []
    if start < len(instructions) and instructions[start].opname == "PUSH_NULL":
        start += 1
    for instruction in instructions[start:]:
        # branches inside the arguments make them computed ones
        if instruction.opcode in _JUMPS or instruction.is_jump_target:
            return []
        if instruction.opname in {"CALL", "CALL_KW"}:
            count = instruction.arg or 0
            passed = count + (instruction.opname == "CALL_KW")
            if passed == len(stack):
                return [entry for entry in stack[:count] if isinstance(entry, str)]
            # a call inside the arguments: takes its function and a marker, too, and leaves a result
            if not _replace(stack, taken=passed + 2, left=1):
                return []
        elif instruction.opname not in _NO_EFFECT and not _step(stack, instruction):
            return []
    return []


def _step(stack: list[_Entry], instruction: dis.Instruction) -> bool:
    change = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
    if instruction.opname == "LOAD_CONST":
        stack.append(instruction.argval if isinstance(instruction.argval, str) else False)
        return True
    if instruction.opname.startswith(_PLAIN_LOADS):
        stack.extend([False] * change)
        return True
    if change < 0:
        return _replace(stack, taken=1 - change, left=1)
    return _replace(stack, taken=1, left=1 + change)


def _replace(stack: list[_Entry], *, taken: int, left: int) -> bool:
    if taken > len(stack):
        return False
    del stack[len(stack) - taken :]
    stack.extend([False] * left)
    return True
