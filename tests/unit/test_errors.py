"""One tree of errors: drawn as it is, with codes that are unique and words for each."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator

import pytest

from runner import errors
from runner.errors import RemoteError, RunnerError, UsageError

# every module that may define one is loaded, so that none escapes the tests below
from runner.cli import main as main  # isort: skip
import runner.isolated
import runner.run  # noqa: F401  # loads what is below it


def tree(root: type[RunnerError] = RunnerError) -> Iterator[type[RunnerError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__.startswith("runner."):
            yield from tree(child)


ALL = list(tree())


def drawn(root: type[RunnerError], indent: str = "") -> list[str]:
    lines = [root.__name__]
    children = root.__subclasses__()
    for child in children:
        last = child is children[-1]
        first, *rest = drawn(child)
        lines.append(("└── " if last else "├── ") + first)
        lines += [("    " if last else "│   ") + line for line in rest]
    return lines


def test_the_tree_drawn_in_the_module_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    picture = [line.removeprefix("    ") for line in errors.__doc__.splitlines() if re.search(r"Error$", line)]
    assert picture == drawn(RunnerError)


def test_every_error_is_defined_in_one_module() -> None:
    assert {kind.__module__ for kind in ALL} == {"runner.errors"}


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in ALL]
    assert sorted(codes) == sorted(set(codes))


@pytest.mark.parametrize("kind", ALL)
def test_each_has_a_name_a_code_a_fault_and_words(kind: type[RunnerError]) -> None:
    assert kind.__name__.endswith("Error")
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert "code" in vars(kind)
    assert kind.fault in ("bundle", "usage", "host")
    assert kind.__doc__ is not None
    assert kind.__doc__.startswith("Raised when ")


@pytest.mark.parametrize("kind", ALL)
def test_each_survives_copying_and_pickling_whole(kind: type[RunnerError]) -> None:
    error = kind("what failed", hint="what to do", detail="more\nlines")
    if isinstance(error, RemoteError):
        error.remote_type = "ValueError"
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is kind
        assert vars(twin) == vars(error)
        assert str(twin) == "what failed what to do"


def test_the_text_is_the_message_and_the_hint() -> None:
    assert str(UsageError("it failed.")) == "it failed."
    assert str(UsageError("it failed.", hint="Do this.")) == "it failed. Do this."


def test_the_traceback_of_a_remote_error_is_its_detail() -> None:
    assert RemoteError("x", remote_traceback="Traceback").detail == "Traceback"
    assert RemoteError("x", remote_traceback="Traceback", detail="other").detail == "other"
