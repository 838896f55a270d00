"""What a call that only looks something up would give: the names behind `getattr`, `import_module` and their like.

Followed so that a name is judged however it is reached; whatever cannot be followed stays a call.
"""

from __future__ import annotations

from typing import Final

from runner.inspecting.values import Call, Global, Group, Value, made_by, members
from runner.inspecting.verdicts import CLOUDPICKLE

_IMPORTS: Final = frozenset(
    {"importlib.import_module", "importlib.__import__", "builtins.__import__", "_frozen_importlib.__import__"}
    | {f"{module}.subimport" for module in CLOUDPICKLE}
)
_TYPES: Final = frozenset(f"{module}._builtin_type" for module in CLOUDPICKLE)
_ITEMS: Final = frozenset({"operator.getitem", "_operator.getitem"})
_ATTRIBUTES: Final = frozenset({"operator.attrgetter", "_operator.attrgetter"})
_METHODS: Final = frozenset({"operator.methodcaller", "_operator.methodcaller"})
_WRAPPERS: Final = frozenset({"functools.partial", "functools.partialmethod", "types.MethodType"})
_WRAPPERS_DEEP: Final = 20


def looked_up(callee: Value, arguments: Value) -> Global | None:
    """Return what the call gives, where it is something that is imported or an attribute of that; `None` otherwise."""
    given = members(arguments)
    first = given[0] if given else None
    second = given[1] if len(given) > 1 else None
    if isinstance(callee, Global):
        path = callee.path
        if path in _IMPORTS:
            return _imported(first) if isinstance(first, str) else None
        if path in _TYPES and isinstance(first, str):
            return Global("types", first)
        if path == "builtins.vars" and isinstance(first, Global):
            return _attribute(first, "__dict__")
        if isinstance(first, Global) and isinstance(second, str):
            if path == "builtins.getattr":
                return _attribute(first, second)
            if path in _ITEMS:
                return _item(first, second)
    elif isinstance(callee, Call) and made_by(callee) in _ATTRIBUTES and isinstance(first, Global):
        names = members(callee.arguments)
        if len(names) == 1 and isinstance(names[0], str):
            return _attribute(first, names[0])
    return None


def called(callee: Value, arguments: Value) -> tuple[Value, Value]:
    """Return what is called in the end, and with what: the function inside a partial one, the method asked for."""
    for _ in range(_WRAPPERS_DEEP):
        if not isinstance(callee, Call):
            break
        inner, given = members(callee.arguments), members(arguments)
        if made_by(callee) in _WRAPPERS and inner:
            arguments = Group("tuple", [*inner[1:], *given])
            callee = inner[0]
        elif made_by(callee) in _METHODS and inner and isinstance(inner[0], str):
            owner = given[0] if given else None
            return (_attribute(owner, inner[0]) if isinstance(owner, Global) else callee), arguments
        else:
            break
    return callee, arguments


def imports_by_name(callee: Value) -> bool:
    """Tell whether a call of it imports the module that it is given the name of."""
    return isinstance(callee, Global) and callee.path in _IMPORTS


def _imported(name: str) -> Global:
    return Global(name, "")


def _attribute(owner: Global, name: str) -> Global:
    return Global(owner.module, f"{owner.name}.{name}" if owner.name else name)


def _item(owner: Global, key: str) -> Global | None:
    if owner.path == "sys.modules":
        return _imported(key)
    holder, _, last = owner.name.rpartition(".")
    return _attribute(Global(owner.module, holder), key) if last == "__dict__" else None
