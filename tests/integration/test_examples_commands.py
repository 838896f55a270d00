"""The commands in the examples' docstrings: their files and options exist, and their pages show the same ones."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from runner.cli.parser import parse_arguments
from tests.integration.example_environment import EXAMPLES

NAMES = ["guessing", "judged", "maze"]


def docstring_commands(name: str) -> list[list[str]]:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name / f"{name}.py").read_text())) or ""
    lines = re.findall(r"^ {4}(\S.*)$", docstring.replace("\\\n", " "), flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def page_commands(name: str) -> list[list[str]]:
    return [
        shlex.split(line)
        for line in re.findall(r"^\$ (.*)$", (EXAMPLES / name / "README.md").read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_commands_of_the_docstring(name: str) -> None:
    assert page_commands(name) == docstring_commands(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_name_files_and_options_that_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    commands = docstring_commands(name)
    assert len(commands) >= 3
    for program, *arguments in commands:
        for path in re.findall(r"examples/[\w./]+", " ".join(arguments)):
            assert Path(path).exists(), path
        if program == "benchmax":
            assert parse_arguments(arguments).command == arguments[0]
        else:
            assert program == "python"
