"""Which line of a source file binds a name: what an author has to change is rarely where it fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Places:
    """Looks lines up in source files, each of which is read once."""

    def __init__(self) -> None:
        self._files: dict[str, _Source] = {}

    def of_global(self, file: str, name: str) -> int:
        """Return the line of a module's file that binds a global last, 0 if none is found."""
        return self._source(file).bound.get(name, 0)

    def of_class(self, file: str, qualified_name: str) -> int:
        """Return the line of a class statement, 0 if none is found."""
        found = self._source(file).classes.get(qualified_name)
        return 0 if found is None else found.lineno

    def of_class_source(self, file: str, qualified_name: str) -> int:
        """Return the line where the text of a class begins, that of its first decorator; 0 if none is found."""
        found = self._source(file).classes.get(qualified_name)
        return 0 if found is None else min([found.lineno, *(one.lineno for one in found.decorator_list)])

    def of_attribute(self, file: str, qualified_name: str, name: str) -> int:
        """Return the line in a class's body that binds an attribute, 0 if none is found."""
        found = self._source(file).classes.get(qualified_name)
        return 0 if found is None else _bound_lines(found).get(name, 0)

    def class_body(self, file: str, qualified_name: str) -> ast.ClassDef | None:
        """Return the class statement, if the file has it."""
        return self._source(file).classes.get(qualified_name)

    def function_body(self, file: str, first_line: int) -> Definition | None:
        """Return the function statement whose code begins at a line (that of its first decorator, if it has any)."""
        return self._source(file).functions.get(first_line)

    def of_call(self, file: str, name: str, method: str) -> int:
        """Return the line of a module's file that first calls a method of a global, 0 if none is found."""
        return self._source(file).calls.get(f"{name}.{method}", 0)

    def _source(self, file: str) -> _Source:
        if file not in self._files:
            self._files[file] = _Source(file)
        return self._files[file]


class _Source:
    def __init__(self, file: str) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[int, Definition] = {}
        self.bound: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        try:
            tree = ast.parse(Path(file).read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            # made by exec, typed into a prompt, or a file that is gone: there is no line to show
            return
        self.bound = _bound_lines(tree)
        for node in _in_scope(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                self.calls.setdefault(ast.unparse(node.func), node.lineno)
        self._enter(tree, "")

    def _enter(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self.classes[prefix + child.name] = child
                self._enter(child, f"{prefix}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[min([child.lineno, *(one.lineno for one in child.decorator_list)])] = child
                self._enter(child, f"{prefix}{child.name}.<locals>.")
            else:
                self._enter(child, prefix)


def _bound_lines(scope: ast.AST) -> dict[str, int]:
    """Return the lines of the last statements that bind names in a scope, those of nested scopes left out."""
    found: dict[str, int] = {}
    for node in _in_scope(scope):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = node.lineno
    return found


def _in_scope(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _in_scope(child)
