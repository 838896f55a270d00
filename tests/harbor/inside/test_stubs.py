"""What our stubs say of Harbor is true of the release that is installed."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

STUBS = Path(__file__).parents[3] / "stubs"
FILES = [file for file in sorted(STUBS.rglob("*.pyi")) if file.name != "__init__.pyi"]


def module_of(file: Path) -> ModuleType:
    return importlib.import_module(".".join(file.relative_to(STUBS).with_suffix("").parts))


def fields_of(owner: type) -> set[str]:
    found = {name for base in owner.__mro__ for name in getattr(base, "__annotations__", {})}
    return found | set(dir(owner)) | set(getattr(owner, "model_fields", {}))


def assigned_in(owner: type) -> str:
    return "\n".join(inspect.getsource(base) for base in owner.__mro__ if base.__module__.startswith("harbor."))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(STUBS)))
def test_every_name_of_a_stub_is_there(file: Path) -> None:
    module = module_of(file)
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            check_class(node, getattr(module, node.name))
        elif isinstance(node, ast.ImportFrom):
            imported = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(imported, alias.name), f"{node.module}.{alias.name}"
                if alias.asname:
                    assert hasattr(module, alias.asname)


def check_class(node: ast.ClassDef, owner: type) -> None:
    fields, where = fields_of(owner), f"{owner.__module__}.{owner.__qualname__}"
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            name = ast.unparse(member.target)
            assert name in fields or f"self.{name}" in assigned_in(owner), f"{where}.{name}"
        elif isinstance(member, ast.Assign):
            name = ast.unparse(member.targets[0])
            value: Any = getattr(owner, name).value
            assert value == ast.literal_eval(member.value), f"{where}.{name}"
        elif isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            check_function(member, owner, where)


def check_function(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: type, where: str) -> None:
    found = inspect.getattr_static(owner, node.name, None)
    assert found is not None, f"{where}.{node.name}"
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    assert isinstance(found, property) == ("property" in decorators), f"{where}.{node.name}"
    if isinstance(found, property):
        return
    function = getattr(owner, node.name)
    if isinstance(node, ast.AsyncFunctionDef):
        assert inspect.iscoroutinefunction(function), f"{where}.{node.name}"
    taken = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    given = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    for name in given:
        assert name in ("self", "cls") or name in taken or takes_all, f"{where}.{node.name}({name})"
