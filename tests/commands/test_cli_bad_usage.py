"""Command lines that cannot be meant, and hosts that are not up to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


COMMAND_LINES = {
    "": ["COMMAND", "benchmax --help"],
    "frobnicate": ["invalid choice: 'frobnicate'", "benchmax --help"],
    "run": ["required: DIR", "benchmax run --help"],
    "bundle x.py:X": ["required: --out", "benchmax bundle --help"],
    "run artifact --max-example 3": ["unknown argument: --max-example", "did you mean --max-examples?"],
    "inspect artifact more": ["unknown argument: more"],
    "run artifact --split test": ["--split", "'test'", "train", "eval"],
}

NUMBERS = [
    *(f"--{name} {value}" for name in ("group-size", "max-examples", "workers") for value in ("0", "-1")),
    "--max-in-flight 0",
    "--group-size two",
    *(f"--timeout {value}" for value in ("0", "-1", "nan", "inf", "soon")),
]

RUN_OPTIONS = {
    "--data nowhere": ["dataset path nowhere does not exist", "Give --data the folder"],
    "--data tiny.py": ["dataset path tiny.py is not a folder", "Give --data the folder"],
    "--api-key-env MISSING --base-url http://127.0.0.1:1/v1": [
        "--api-key-env",
        "variable MISSING is not set",
        "Export",
    ],
    "--api-key-env BROKEN --base-url http://127.0.0.1:1/v1": ["variable BROKEN holds characters", "line break"],
    "--api-key-env HOME": ["--api-key-env needs --base-url"],
    "--auth judge": ["--auth … is not of the form NAME=env:VAR@URL", "It looks like --auth judge=env:"],
    "--auth judge=SECRET@http://x": ["--auth judge=… is not of the form", "It looks like"],
    "--base-url http://me:SECRET@host/v1": ["user name or a password", "--api-key-env VAR"],
    "--auth judge=env:MISSING@http://x": ["--auth", "variable MISSING is not set", "Export it"],
    "--auth judge=env:HOME@nonsense": [
        "--auth judge: 'nonsense' cannot be bound",
        "is not a base URL such as https://",
    ],
    "--auth j=env:HOME@http://x --auth j=env:HOME@http://y": ["--auth j is given twice", "Leave one of them out"],
    "--sandbox bogus": ["'bogus' is not known", "auto, off"],
    "--network bogus": ["'bogus' is not known", "open, model-only, none"],
    "--allow db.example:5432": ["allow has no meaning with the network mode open", "model-only"],
    "--network none --allow db.example:5432": ["allow has no meaning with the network mode none", "Leave it out"],
    "--network model-only --allow db.example": ["'db.example' cannot be reached", "HOST:PORT"],
    "--secret KEY": ["--secret … is not of the form NAME=env:VAR", "It looks like --secret DATABASE_URL=env:"],
    "--secret KEY=SECRET": ["--secret KEY=… is not of the form", "It looks like"],
    "--secret KEY=env:MISSING": ["--secret", "variable MISSING is not set", "Export it"],
    "--secret KEY=env:not-a-name": ["--secret wants the name of an environment variable", "not on the command line"],
    "--secret PATH=env:HOME": ["the secret PATH would replace a variable", "another name"],
    "--secret A-B=env:HOME": ["'A-B' is not the name of a secret variable", "underscores"],
    "--secret KEY=env:HOME --secret KEY=env:HOME": ["--secret KEY is given twice", "Leave one of them out"],
    "--credentials bogus": ["'bogus' is not known", "headers"],
    "--model mok": ["no model `mok`", "Did you mean `mock`?", "--base-url"],
    "--model gpt-4o": ["no model `gpt-4o`", "`mock:SCRIPT` and `local`", "--base-url"],
    "--model mock:missing.json": ["missing.json cannot be read", "Check the path"],
    "--model mock:tiny.py": ["tiny.py", "Name it .json or .toml"],
    "--base-url nonsense": ["'nonsense' is not the base URL", "It looks like https://host/v1"],
    "--base-url ftp://host/v1": ["is not the base URL", "It looks like"],
    "--base-url http://127.0.0.1:99999/v1": ["is not the base URL", "It looks like"],
    "--json-out nowhere/report.json": ["cannot write --json-out nowhere/report.json", "Name a file"],
    "--json-out artifact": ["cannot write --json-out artifact: Is a directory", "Name a file"],
    "--index-url nonsense": ["'nonsense' is not the address of a package index", "https://host/simple"],
    "--python /nowhere/python": ["'/nowhere/python' is neither an interpreter nor a version"],
    "--python 3.1": ["Python 3.1 was asked for", "is needed"],
}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_line_that_cannot_be_parsed_is_explained_in_one_line(benchmax: CommandLine, line: str) -> None:
    finished = benchmax(*line.split())
    said = finished.error(2)
    for part in COMMAND_LINES[line]:
        assert part in said
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_out_of_range_is_named_with_its_option(benchmax: CommandLine, option: str) -> None:
    name, value = option.split()
    said = benchmax("run", "artifact", name, value).error(2)
    assert said.startswith(f"{name}: must be a ")
    assert f"got {value!r}" in said


@pytest.mark.parametrize("options", RUN_OPTIONS)
def test_an_option_that_cannot_be_meant_is_refused_before_anything_runs(benchmax: CommandLine, options: str) -> None:
    benchmax.artifact()
    benchmax.source("tiny.py")
    finished = benchmax("run", "artifact", *options.split(), env={"BROKEN": "key\n"})
    said = finished.error(2)
    for part in RUN_OPTIONS[options]:
        assert part in said
    assert "SECRET" not in said
    assert "constructed" not in finished.err


def test_an_endpoint_that_does_not_answer_leaves_it_undecided(benchmax: CommandLine) -> None:
    benchmax.artifact()
    said = benchmax("run", "artifact", "--base-url", "http://127.0.0.1:1/v1", "--json-out", "out.json").error(3)
    assert "endpoint http://127.0.0.1:1/v1 does not answer" in said
    assert "Check --base-url" in said


@pytest.mark.parametrize("command", ["bundle tiny.py:Tiny --out new", "run artifact"])
def test_without_a_network_a_cold_cache_leaves_it_undecided(benchmax: CommandLine, command: str) -> None:
    benchmax.cache = benchmax.cwd.parent / "cold"
    benchmax.artifact()
    benchmax.source("tiny.py")
    said = benchmax(*command.split(), "--index-url", "http://127.0.0.1:1/simple").error(3)
    assert "package index at 127.0.0.1:1 cannot be reached" in said
    assert "Check the network" in said
    assert not [*benchmax.cache.glob("venvs/*/manifest.json")]


def test_with_a_warm_cache_no_network_is_needed(benchmax: CommandLine) -> None:
    benchmax.artifact()
    benchmax("prepare", "artifact").good()
    # proxies that refuse every connection
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:1")
    assert "cached" in benchmax("prepare", "artifact", env=nowhere).err


@pytest.mark.parametrize("command", ["bundle tiny.py:Tiny --out new", "prepare artifact", "run artifact"])
def test_an_unwritable_cache_leaves_it_undecided(benchmax: CommandLine, command: str) -> None:
    benchmax.artifact()
    file = benchmax.source("tiny.py")
    for place in (file, file / "below"):
        said = benchmax(*command.split(), env={"BENCHMAX_CACHE_DIR": str(place)}).error(3)
        assert f"cache {place} cannot be used" in said
        assert "Set BENCHMAX_CACHE_DIR to a writable folder" in said


def test_an_interpreter_that_is_not_installed_leaves_it_undecided(benchmax: CommandLine) -> None:
    benchmax.source("tiny.py")
    series = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = benchmax("bundle", "tiny.py:Tiny", "--out", "new", "--python", f"{series}.99").error(3)
    assert f"no CPython {series}.99 was found" in said
    assert "--python PATH" in said


def test_an_interpreter_that_does_not_run_leaves_it_undecided(benchmax: CommandLine) -> None:
    benchmax.artifact()
    said = benchmax("run", "artifact", "--python", "/bin/false").error(3)
    assert "/bin/false is not a usable Python" in said


def test_a_full_disk_behind_standard_output_is_said(benchmax: CommandLine) -> None:
    benchmax.artifact()
    with Path("/dev/full").open("wb") as full:
        said = benchmax("inspect", "artifact", out=full.fileno()).error(3)
    assert "No space left on device" in said
