"""What is in a pickle, told without executing it."""

from __future__ import annotations

import opcode
import sys
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

from runner.provision.wheel import own_requires_python
from runner.validation import contents
from runner.validation.contents import Contents, DelayedImport
from tests.validation.zoo import sound

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


class Importing(sound.Sound):
    tag = "a tag of the class"

    def __init__(self, size: int = 1, nested: Any = None) -> None:
        self.size = size

    def plot(self) -> object:
        import pandas.plotting  # type: ignore[import-untyped]

        def inside() -> object:
            from numpy import array

            return array

        return pandas.plotting, inside

    def own(self) -> object:
        from . import gateway_lab

        return gateway_lab


@pytest.fixture(scope="module")
def found() -> Contents:
    # `dump_bundle` would not let all of it pass
    modules = (sound, sys.modules[__name__])
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return Contents(cloudpickle.dumps((Importing, {"nested": {"url": ["a value", {"deep": "a deep value"}]}})))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a tag of the class", "Importing → tag"),
        ("a value", "constructor_args['nested']['url']"),
        ("a deep value", "constructor_args['nested']['url']['deep']"),
        ("multiply two numbers", "Sound.tools → description"),
    ],
)
def test_every_value_is_there_with_the_way_to_it(value: str, path: str, found: Contents) -> None:
    assert [one.path for one in found.values() if one.value == value] == [path]


def test_imports_inside_functions_are_there_with_their_function(found: Contents) -> None:
    later = found.delayed_imports(THIS)
    assert DelayedImport("pandas.plotting", "Importing.plot") in later
    assert DelayedImport("numpy", "Importing.plot.<locals>.inside") in later
    # a module of the bundle's own is meant, wherever it is
    assert not [one for one in later if "gateway_lab" in one.module or one.function == "Importing.own"]


def test_nothing_is_told_of_the_code_of_an_unknown_python(found: Contents) -> None:
    assert found.delayed_imports("3.99") == []


def test_the_instructions_are_those_of_every_python_there_is() -> None:
    assert contents._OPCODES[THIS] == (opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"])
    assert [*contents._OPCODES] == ["3.11", "3.12", "3.13"]
    assert "3.14" in own_requires_python()


@pytest.mark.parametrize("data", [b"", b"\x80\x05", b"nonsense", b"\x80\x05K\x01."])
def test_a_pickle_that_is_none_has_nothing_in_it(data: bytes) -> None:
    assert [one for one in Contents(data).values() if isinstance(one.value, str)] == []
