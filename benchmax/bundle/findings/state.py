"""State that rollouts share: they run at the same time, on one instance, in one process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from benchmax.bundle.findings.finding import Finding
from benchmax.bundle.findings.places import Definition
from benchmax.bundle.findings.walk import Walk

_PER_ROLLOUT: Final = frozenset({"compute_reward", "list_tools", "rollout_context", "run_rollout", "run_tool"})
_ONCE: Final = frozenset({"__init__", "__post_init__", "aclose", "create_dataset"})
_CHANGING_CALLS: Final = frozenset(
    {
        "os.chdir", "os.putenv", "os.unsetenv", "os.environ.update", "os.environ.setdefault", "os.environ.pop",
        "os.environ.clear", "environ.update", "environ.setdefault", "environ.pop",
    }
)  # fmt: skip
_ENVIRONMENTS: Final = frozenset({"os.environ", "environ"})


def find_shared_attributes(walk: Walk) -> Iterator[Finding]:
    """Yield attributes of the environment that a rollout assigns."""
    for node, cls in walk.classes:
        body = walk.places.class_body(node.anchor.file, cls.__qualname__)
        if body is None or not any(base.__module__.startswith("benchmax.envs") for base in cls.__mro__):
            continue
        methods = {one.name: one for one in body.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
        for name in _reached(methods):
            for attribute, line in _assigned_attributes(methods[name]):
                yield Finding(
                    severity="warning",
                    code="shared-state",
                    what=f"{cls.__qualname__}.{name} → self.{attribute}",
                    message="rollouts run at the same time on one instance, so one overwrites what another has stored",
                    fix=f"Keep it in a local variable, or in a dict by rollout id: self.{attribute}[rollout_id].",
                    file=node.anchor.file,
                    line=line,
                )


def find_process_state(walk: Walk) -> Iterator[Finding]:
    """Yield changes of the process that every other rollout sees."""
    for node, function in walk.functions:
        code = function.__code__
        body = walk.places.function_body(code.co_filename, code.co_firstlineno)
        if body is None or body.name in _ONCE or not walk.travel.is_authors(code.co_filename):
            continue
        for what, line in _process_changes(body):
            yield Finding(
                severity="warning",
                code="process-state",
                what=f"{node.path} → {what}",
                message="rollouts share one process, so every other one sees the change",
                fix="Pass the value as an argument; to a program give it with env= or cwd=.",
                file=code.co_filename,
                line=line,
            )
        for name, line in _assigned_globals(body):
            yield Finding(
                severity="warning",
                code="shared-state",
                what=f"{node.path} → global {name}",
                message="rollouts share the module's globals, so one overwrites what another has stored",
                fix="Keep it in a local variable, or in a dict by rollout id.",
                file=code.co_filename,
                line=line,
            )


def _reached(methods: dict[str, Definition]) -> list[str]:
    """Return the methods that run once per rollout, and those they call on the same instance."""
    pending = sorted(_PER_ROLLOUT & methods.keys())
    reached: dict[str, None] = {}
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached[name] = None
        own = _own_name(methods[name])
        for call in ast.walk(methods[name]):
            if isinstance(call, ast.Attribute) and _is_name(call.value, own) and call.attr in methods:
                pending.append(call.attr)
    return list(reached)


def _assigned_attributes(method: Definition) -> Iterator[tuple[str, int]]:
    own = _own_name(method)
    for target, guards in _stores(method, ()):
        if isinstance(target, ast.Attribute) and _is_name(target.value, own) and target.attr not in guards:
            yield target.attr, target.lineno


def _assigned_globals(function: Definition) -> Iterator[tuple[str, int]]:
    declared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    for target, guards in _stores(function, ()):
        if isinstance(target, ast.Name) and target.id in declared and target.id not in guards:
            yield target.id, target.lineno


def _process_changes(function: Definition) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if (name := ast.unparse(node.value)) in _ENVIRONMENTS:
                yield f"{name}[…]", node.lineno
        elif isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in _CHANGING_CALLS:
            yield f"{name}(…)", node.lineno


def _stores(node: ast.AST, guards: tuple[str, ...]) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Yield what is assigned to, with the names that the conditions around it look at.

    What is made once, when it is first needed, is asked for first: `if self.client is None: self.client = …`.
    """
    for child in ast.iter_child_nodes(node):
        inner = guards
        if isinstance(child, ast.If):
            inner = (*guards, *_names_in(child.test))
        if isinstance(child, (ast.Attribute, ast.Name)) and isinstance(child.ctx, ast.Store):
            yield child, guards
        yield from _stores(child, inner)


def _names_in(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _own_name(method: Definition) -> str:
    arguments = [*method.args.posonlyargs, *method.args.args]
    return arguments[0].arg if arguments else ""


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
