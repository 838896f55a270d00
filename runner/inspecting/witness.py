"""What was seen while a pickle's instructions were followed: imports, calls, what travels by value, and findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from runner.inspecting.bounds import MAX_DISTINCT, MAX_FINDINGS
from runner.inspecting.lookup import called, imports_by_name
from runner.inspecting.values import Call, Global, Group, Unknown, Value, made_by, members, shown
from runner.inspecting.verdicts import (
    EXPECTED,
    FILLS,
    HARMLESS_DUNDERS,
    HOLDERS,
    INDIRECT,
    MAKES_CLASS,
    MAKES_FUNCTION,
    MAKES_MODULE,
    OR,
    REDUCE,
    VARIABLES,
    deed,
)
from runner.text import one_line

Severity: TypeAlias = Literal["danger", "warning", "note"]

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


@dataclass(slots=True, kw_only=True)
class Finding:
    """Something about a pickle that whoever loads it should know.

    Args:
        severity: `danger`: loading it does what no packing of an environment asks for; `warning`: it may, or it cannot
            be told; `note`: nothing unusual, but good to know.
        code: Which kind it is; stable.
        message: What it is, in one line that is safe to show.
        position: Where in the pickle it was first seen, in bytes from the beginning; -1 when it has no place.
        count: How often it was seen.
    """

    severity: Severity
    code: str
    message: str
    position: int
    count: int = 1


@dataclass(slots=True)
class Seen:
    """A name, where it was first seen, and how often."""

    position: int
    count: int = 1


class Witness:
    """Takes down what a pickle imports and calls, and what is worth telling about it."""

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], Seen] = {}
        self.calls: dict[str, Seen] = {}
        self.functions: list[Call] = []
        self.classes: list[Call] = []
        self.modules: dict[str, None] = {}
        self.left_out: dict[str, int] = {}
        self._findings: dict[tuple[str, str], Finding] = {}

    @property
    def findings(self) -> Iterable[Finding]:
        """Everything found, in order of first sight."""
        return self._findings.values()

    def find(self, severity: Severity, code: str, message: str, position: int = -1) -> None:
        """Take down a finding; one that is there already is counted."""
        there = self._findings.get((code, message))
        if there is not None:
            there.count += 1
        elif len(self._findings) < MAX_FINDINGS or severity == "danger":
            self._keep("findings", self._findings, (code, message), Finding(
                severity=severity, code=code, message=message, position=position
            ))  # fmt: skip
        else:
            self._leave_out("findings")

    def imported(self, found: Global, position: int) -> None:
        """Take down that something is imported."""
        self._count("imports", self.imports, (found.module, found.name), position)

    def call(self, target: Value, arguments: Value, position: int) -> None:
        """Take down and judge one call of what is called in the end."""
        if isinstance(target, Global):
            self._reach(target, arguments, position)
            self._call_of_name(target, arguments, position)
        elif isinstance(target, Call):
            self._call_of_result(target, position)
        elif isinstance(target, Unknown):
            self.find(
                "warning", "calls-unknown", "calls something while it is loaded that could not be followed", position
            )
        else:
            self.find("warning", "calls-unknown", f"calls {shown(target, 80)} while it is loaded", position)

    def fill(self, target: Value, how: str, position: int) -> None:
        """Judge that something is filled or changed: what is imported is not the bundle's own."""
        if isinstance(target, Global):
            path = one_line(target.path)
            self.find("danger", "changes-imported", f"{how} {path}, which is not its own, while it is loaded", position)

    def made(self, result: Call) -> None:
        """Take down what travels by value."""
        path = made_by(result)
        if path in MAKES_FUNCTION:
            self._append("functions", self.functions, result)
        elif path in MAKES_CLASS:
            self._append("classes", self.classes, result)
        elif path in MAKES_MODULE:
            given = members(result.arguments)
            if given and isinstance(given[0], str):
                self._keep("modules", self.modules, given[0], None)

    def _call_of_name(self, target: Global, arguments: Value, position: int) -> None:
        path = target.path
        self._count("calls", self.calls, path, position)
        if path in FILLS:
            given = members(arguments)
            self.fill(given[0] if given else None, "changes", position)
            return
        if path in EXPECTED or _is_of_types(path, arguments):
            if path not in MAKES_FUNCTION and path not in HOLDERS:
                self._handed(target, arguments, position)
            return
        name = one_line(path)
        what = deed(target.module, target.name)
        if what == VARIABLES:
            self.find("warning", "environment", f"calls {name} while it is loaded, which {what}", position)
            return
        if what:
            self.find("danger", "calls", f"calls {name} while it is loaded, which {what}", position)
            return
        if path in INDIRECT:
            self.find(
                "warning", "calls-indirectly", f"calls {name} while it is loaded: it calls what it is given", position
            )
        self._handed(target, arguments, position)

    def _call_of_result(self, target: Call, position: int) -> None:
        path = made_by(target)
        if path in MAKES_FUNCTION:
            self.find("warning", "runs-own-code", "runs a function of its own while it is loaded", position)
        elif path in MAKES_CLASS:
            self._count("calls", self.calls, "a class of its own", position)
        else:
            message = (
                f"calls what {one_line(path, 80) or 'a call'} gives while it is loaded, and that could not be told"
            )
            self.find("warning", "calls-result", message, position)

    def _handed(self, target: Global, arguments: Value, position: int) -> None:
        # a function that calls what it is given does its deed by another's name
        for one in members(arguments):
            if isinstance(one, Group):
                for inner in one.members:
                    self._handed_one(target, inner, position)
            else:
                self._handed_one(target, one, position)

    def _handed_one(self, target: Global, handed: Value, position: int) -> None:
        if isinstance(handed, Global | Call):
            item, _ = called(handed, None)
            what = deed(item.module, item.name) if isinstance(item, Global) else ""
            if isinstance(item, Global) and what:
                message = f"hands {one_line(item.path)}, which {what}, to {one_line(target.path)} while it is loaded"
                self.find("danger", "hands-over", message, position)

    def _reach(self, callee: Global, arguments: Value, position: int) -> None:
        given = members(arguments)
        if callee.path == "builtins.getattr" and len(given) > 1:
            name = given[1]
            if not isinstance(name, str):
                self.find("warning", "computed-name", "looks up an attribute by a name that is not in it", position)
            elif name.startswith("__") and name not in HARMLESS_DUNDERS:
                self.find("warning", "reaches-inside", f"looks up {one_line(name, 80)} while it is loaded", position)
        if imports_by_name(callee) and not (given and isinstance(given[0], str)):
            self.find("warning", "computed-name", "imports a module by a name that is not in it", position)

    def _count(self, kind: str, table: dict[_Key, Seen], key: _Key, position: int) -> None:
        there = table.get(key)
        if there is not None:
            there.count += 1
        else:
            self._keep(kind, table, key, Seen(position))

    def _keep(self, kind: str, table: dict[_Key, _Item], key: _Key, item: _Item) -> None:
        if len(table) < MAX_DISTINCT:
            table[key] = item
        elif key not in table:
            self._leave_out(kind)

    def _append(self, kind: str, there: list[Call], result: Call) -> None:
        if len(there) < MAX_DISTINCT:
            there.append(result)
        else:
            self._leave_out(kind)

    def _leave_out(self, kind: str) -> None:
        self.left_out[kind] = self.left_out.get(kind, 0) + 1


def _is_of_types(path: str, arguments: Value) -> bool:
    """Tell the two calls that types in annotations are pickled as: that of `None`, and a union."""
    given = members(arguments)
    if path == "builtins.type":
        return len(given) == 1
    first = given[0] if given else None
    return path in REDUCE and isinstance(first, Global) and first.path in OR
