"""What the package offers, and what importing it costs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import runner

ROOT = Path(__file__).parents[2]
HEAVY = (
    "openai", "httpx", "httpx2", "httpcore", "httpcore2", "cloudpickle", "cryptography", "starlette", "uvicorn",
    "virtualenv", "rich", "msgspec", "asyncio", "pickle",
)  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(result.stdout.split())


def test_the_exports_are_sorted_unique_and_there() -> None:
    assert list(runner.__all__) == sorted(set(runner.__all__), key=lambda name: (name.islower(), name))
    for name in runner.__all__:
        value = getattr(runner, name)
        assert value.__name__ == name
        assert value.__doc__


def test_each_export_is_loaded_from_where_it_is_defined() -> None:
    for name in runner.__all__:
        value = getattr(runner, name)
        assert getattr(importlib.import_module(value.__module__), name) is value
        assert value.__module__.startswith("runner.")


def test_every_error_is_exported() -> None:
    from runner import errors

    assert {name for name in vars(errors) if name.endswith("Error")} <= set(runner.__all__)


def test_every_event_is_exported() -> None:
    from typing import get_args

    from runner import record

    assert {event.__name__ for event in get_args(record.Event)} <= set(runner.__all__)


def test_the_table_of_the_package_is_that_of_type_checkers() -> None:
    # __getattr__ hides what the `if TYPE_CHECKING` block names from anything but a type checker
    import ast

    tree = ast.parse(Path(runner.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    named = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert named == runner._HOME_OF


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'runner' has no attribute 'nothing'"):
        runner.nothing  # noqa: B018 - the point


def test_both_packages_are_typed() -> None:
    assert (ROOT / "runner" / "py.typed").is_file()
    assert (ROOT / "benchmax" / "py.typed").is_file()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import runner") & set(HEAVY)


def test_importing_errors_limits_and_protocol_loads_msgspec_and_nothing_else_heavy() -> None:
    assert loaded_by("from runner import FrameError, Limits; import runner.protocol") & set(HEAVY) == {"msgspec"}


@pytest.mark.parametrize("name", ["isolate", "Binding", "read_artifact", "RolloutRecord"])
def test_using_the_package_loads_no_http_stack_and_nothing_that_unpickles(name: str) -> None:
    heavy = {"openai", "httpx", "httpx2", "httpcore", "cloudpickle", "starlette", "uvicorn", "virtualenv", "rich"}
    assert not loaded_by(f"from runner import {name}") & heavy


def test_dir_of_the_package_lists_what_it_offers() -> None:
    assert set(runner.__all__) <= set(dir(runner)) | set(runner._HOME_OF)
