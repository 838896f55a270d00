"""A pickle inspected: what loading it would import, call and make, told without doing any of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from runner.inspecting.bounds import MAX_OPCODES, NESTED_DEPTH, NESTED_PICKLES
from runner.inspecting.contents import (
    ClassContents,
    FunctionContents,
    arguments_of,
    class_name,
    classes_of,
    functions_of,
    names_in,
)
from runner.inspecting.machine import Machine
from runner.inspecting.opcodes import BrokenPickleError
from runner.inspecting.values import Group, Pairs, members
from runner.inspecting.verdicts import EXPECTED, deed, named_in_code
from runner.inspecting.witness import Finding, Seen, Severity, Witness
from runner.text import one_line

_ORDER: Final[dict[Severity, int]] = {"danger": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A name that is called, how often, and whether pickles of classes and data are made of such calls."""

    name: str
    count: int
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A module that loading imports, and the names that are asked of it, sorted; empty when only itself is."""

    module: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a pickle says of itself. All texts are one line, except docstrings, and not yet safe to show as they stand.

    Args:
        size: Its bytes.
        protocol: Its protocol, the last it names; 0 when it names none.
        opcodes: Its instructions that were followed.
        broken: Why loading it fails, empty when nothing of that kind was seen.
        unfinished: Why it was not followed to its end, empty when it was.
        environment: The class it holds, as `module.Name` or `Name`; empty when that could not be told.
        arguments: The constructor's arguments it holds, each described in one line.
        findings: What whoever loads it should know, worst first.
        imports: What it imports, sorted.
        calls: What it calls while it is loaded, most often first.
        modules: Modules that it brings along, sorted.
        classes: Classes that it brings along.
        functions: Functions that it brings along and that are in no class.
        left_out: Kinds of which there is more than is told, each with how much.
    """

    size: int
    protocol: int
    opcodes: int
    broken: str
    unfinished: str
    environment: str
    arguments: dict[str, str]
    findings: tuple[Finding, ...]
    imports: tuple[Imported, ...]
    calls: tuple[Counted, ...]
    modules: tuple[str, ...]
    classes: tuple[ClassContents, ...]
    functions: tuple[FunctionContents, ...]
    left_out: dict[str, int]

    @property
    def dangers(self) -> tuple[Finding, ...]:
        """The findings that no packing of an environment explains."""
        return tuple(one for one in self.findings if one.severity == "danger")

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return asdict(self)


def inspect_pickle(data: bytes, *, max_opcodes: int = MAX_OPCODES) -> Overview:
    """Follow a pickle without executing anything of it, and tell what loading it would do.

    Args:
        data: The pickle, whatever it is: a broken one gives an overview that says so.
        max_opcodes: Instructions to follow at most.
    """
    witness = Witness()
    machine, broken = _follow(data, witness, max_opcodes)
    if machine.end and machine.end < len(data):
        rest = len(data) - machine.end
        witness.find("warning", "rest", f"is followed by {rest:,} bytes that loading never looks at", machine.end)
    _judge_result(machine, witness)
    _judge_contents(witness)
    _judge_nested(data, machine, witness, max_opcodes)
    held = members(machine.result)
    return Overview(
        size=len(data),
        protocol=machine.protocol,
        opcodes=machine.opcodes,
        broken=broken,
        unfinished=machine.unfinished,
        environment=class_name(held[0]) if held else "",
        arguments=arguments_of(held[1]) if len(held) > 1 else {},
        findings=tuple(sorted(witness.findings, key=lambda one: (_ORDER[one.severity], one.position))),
        imports=_imported(witness.imports),
        calls=_counted(witness.calls),
        modules=tuple(sorted(one_line(name) for name in witness.modules)),
        classes=classes_of(witness.classes),
        functions=functions_of(witness.functions, witness.classes),
        left_out=dict(witness.left_out),
    )


def _follow(data: bytes, witness: Witness, max_opcodes: int) -> tuple[Machine, str]:
    machine = Machine(data, witness, max_opcodes=max_opcodes)
    try:
        machine.run()
    except BrokenPickleError as error:
        return machine, one_line(f"{error} (at byte {error.position:,} of {len(data):,})")
    return machine, ""


def _judge_result(machine: Machine, witness: Witness) -> None:
    if not machine.end:
        return
    held = machine.result
    fits = (
        isinstance(held, Group)
        and held.kind == "tuple"
        and len(held.members) + held.dropped == 2
        and isinstance(members(held)[-1], Pairs)
    )
    if not fits:
        message = "does not hold an environment's class and its arguments, so that loading it fails"
        witness.find("warning", "payload", message, machine.end - 1)


def _judge_contents(witness: Witness) -> None:
    for (module, name), seen in [*witness.imports.items()]:
        what = deed(module, name)
        if what:
            path = one_line(f"{module}.{name}" if name else module)
            witness.find("note", "imports", f"imports {path}, which {what}", seen.position)
    for name, what in named_in_code(dict.fromkeys(names_in(witness.functions))).items():
        witness.find("note", "names", f"names {one_line(name)} in its code, which {what}")


def _judge_nested(data: bytes, machine: Machine, witness: Witness, max_opcodes: int) -> None:
    """Look into data that is a pickle in itself: nothing unpickles it unless something does so on purpose."""
    waiting = [(data[begin:end], begin, 1) for begin, end in machine.nested]
    looked_into = 0
    while waiting:
        inner, place, depth = waiting.pop(0)
        looked_into += 1
        if looked_into > NESTED_PICKLES:
            witness.find("note", "nested", "holds more pickles as data than were looked into", place)
            return
        inside = Witness()
        within, broken = _follow(inner, inside, max_opcodes)
        if broken or within.end != len(inner):
            continue
        names = ", ".join(sorted({one_line(f"{m}.{n}" if n else m, 60) for m, n in inside.imports})[:5])
        message = f"holds another pickle as data, of {len(inner):,} bytes, which imports {names or 'nothing'}"
        witness.find("note", "nested", message, place)
        for one in inside.findings:
            if one.severity == "danger":
                witness.find("warning", "nested", f"holds a pickle as data that {one.message}", place)
        if depth < NESTED_DEPTH:
            waiting += [(inner[begin:end], place, depth + 1) for begin, end in within.nested]


def _imported(seen: dict[tuple[str, str], Seen]) -> tuple[Imported, ...]:
    names: dict[str, set[str]] = {}
    for module, name in seen:
        names.setdefault(one_line(module), set()).update([one_line(name)] if name else [])
    return tuple(Imported(module=module, names=tuple(sorted(names[module]))) for module in sorted(names))


def _counted(seen: dict[str, Seen]) -> tuple[Counted, ...]:
    most = sorted(seen.items(), key=lambda item: (-item[1].count, item[0]))
    return tuple(Counted(name=one_line(name), count=one.count, expected=name in EXPECTED) for name, one in most)
