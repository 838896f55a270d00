"""Artifacts and environments that are broken: one line that says what and what to do, the right exit code, no rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def change(artifact: Path, **fields: object) -> None:
    path = artifact / "env-metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def without(name: str) -> Callable[[Path], None]:
    return lambda artifact: (artifact / name).unlink()


def holding(name: str, data: bytes) -> Callable[[Path], None]:
    def write(artifact: Path) -> None:
        (artifact / name).write_bytes(data)

    return write


def declaring(**fields: object) -> Callable[[Path], None]:
    return lambda artifact: change(artifact, **fields)


METADATA = "env-metadata.json"
PICKLE = "env-cls.pkl"

UNREADABLE = {
    "no metadata": (without(METADATA), 2, "holds no env-metadata.json", "make one with `benchmax bundle`"),
    "no pickle": (without(PICKLE), 2, "holds no env-cls.pkl", "make one with `benchmax bundle`"),
    "empty pickle": (holding(PICKLE, b""), 1, "env-cls.pkl is empty", "Bundle the environment again"),
    "empty metadata": (holding(METADATA, b""), 1, "env-metadata.json is broken", "Bundle the environment again"),
    "not JSON": (holding(METADATA, b"{"), 1, "not JSON", "Bundle the environment again"),
    "not UTF-8": (holding(METADATA, b'\xff\xfe{"'), 1, "not UTF-8", "Bundle the environment again"),
    "no object": (holding(METADATA, b"[]"), 1, "must be a JSON object", "Bundle the environment again"),
    "nested": (holding(METADATA, b"[" * 200_000), 1, "nested too deeply", "Bundle the environment again"),
    "unknown keys": (declaring(colour=1), 1, "unsupported keys ['colour']", "re-bundle"),
    "bad requirement": (declaring(pip_dependencies=["six=="]), 1, "'six==' (", "Bundle the environment again"),
    "twice": (
        declaring(pip_dependencies=["six>1", "Six<2"]),
        1,
        "'six' is declared more than once",
        "Merge the entries",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_artifact_that_cannot_be_read_is_refused(benchmax: CommandLine, case: str) -> None:
    damage, code, what, advice = UNREADABLE[case]
    damage(benchmax.artifact())
    for command in ("inspect", "run"):
        said = benchmax(command, "artifact").error(code)
        assert what in said
        assert advice in said


@pytest.mark.parametrize("path", ["nothing", "tiny.py"])
def test_a_missing_artifact_is_a_usage_error_that_says_what_an_artifact_is(benchmax: CommandLine, path: str) -> None:
    benchmax.source("tiny.py")
    for command in ("inspect", "prepare", "run"):
        said = benchmax(command, path).error(2)
        assert f"no artifact at {path}" in said
        assert "folder that holds env-cls.pkl and env-metadata.json" in said


INCOMPATIBLE = {
    "too new": ({"python_version": "3.14"}, "made with Python 3.14"),
    "too old": ({"python_version": "3.10"}, "made with Python 3.10"),
    "no series": ({"python_version": "three"}, "'three', which is not a series"),
    "benchmax": ({"benchmax_version": "0.9.1"}, "made with benchmax 0.9.1"),
}


@pytest.mark.parametrize("case", INCOMPATIBLE)
def test_a_bundle_of_another_series_is_refused_before_anything_is_made(benchmax: CommandLine, case: str) -> None:
    fields, what = INCOMPATIBLE[case]
    benchmax.cache = benchmax.cwd.parent / "cold"
    change(benchmax.artifact(), **fields)
    for command in ("prepare", "run"):
        finished = benchmax(command, "artifact")
        said = finished.error(3)
        assert what in said
        assert "undle it again" in said
        assert finished.err.count("\n") == 1, "steps were taken"
    assert not benchmax.cache.exists()


@pytest.mark.parametrize(
    ("requirement", "what", "advice"),
    [
        ("six==99", "no version of 'six'", "Loosen that requirement"),
        ("no-such-package-of-anyone-0", "no package named 'no-such-package-of-anyone-0'", "Correct the name"),
    ],
)
def test_a_requirement_that_cannot_be_met_is_the_bundles_fault(
    benchmax: CommandLine, requirement: str, what: str, advice: str
) -> None:
    change(benchmax.artifact(), pip_dependencies=[requirement])
    said = benchmax("run", "artifact").error(1)
    assert what in said
    assert advice in said


def test_a_truncated_pickle_is_named_wherever_it_was_cut(benchmax: CommandLine) -> None:
    whole = (benchmax.artifact() / PICKLE).read_bytes()
    for length in (1, 2, len(whole) // 2, len(whole) - 1):
        (benchmax.cwd / "artifact" / PICKLE).write_bytes(whole[:length])
        said = benchmax("run", "artifact").error(1)
        assert "loading the bundle raised" in said
        assert f"({length} bytes)" in said
        assert "bundle again" in said


BROKEN = {
    "constructor raises": ["constructing the environment raised ValueError: the size is wrong", "bundle it again"],
    "dataset raises": ["create_dataset('eval') raised LookupError: no such column"],
    "dataset reads": ["FileNotFoundError", "rows.jsonl", "check --data and --split"],
    "dataset is empty": ["the eval dataset is empty", "check --data and --split"],
}


@pytest.mark.parametrize("mode", BROKEN)
def test_an_environment_that_cannot_start_is_the_bundles_fault(benchmax: CommandLine, mode: str) -> None:
    benchmax.artifact(mode=mode)
    finished = benchmax("run", "artifact", "--json-out", "report.json")
    said = finished.error(1)
    for part in BROKEN[mode]:
        assert part in said


def test_verbose_shows_the_traceback_of_the_bundle(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="constructor raises")
    brief, verbose = benchmax("run", "artifact"), benchmax("run", "artifact", "--verbose")
    assert "benchmax: more with --verbose" in brief.err
    assert 'raise ValueError("the size is wrong")' not in brief.err
    assert "in __init__" in verbose.err
    assert "more with --verbose" not in verbose.err


def test_inspecting_and_refusing_a_bundle_unpickles_nothing(benchmax: CommandLine) -> None:
    marker = benchmax.cwd.parent / "marker"
    artifact = benchmax.artifact()
    # protocol 0: call open(marker, "w")
    (artifact / PICKLE).write_bytes(f"cio\nopen\n(V{marker}\nVw\ntR.".encode())
    inspected = benchmax("inspect", "artifact")
    assert inspected.code == 1
    assert "calls io.open while it is loaded" in inspected.out
    benchmax("prepare", "artifact").good()
    assert not marker.exists()
    original = (artifact / METADATA).read_bytes()
    change(artifact, benchmax_version="0.9.0")
    benchmax("run", "artifact").error(3)
    assert not marker.exists()
    # the trap itself works: the worker, and nothing else, steps into it
    (artifact / METADATA).write_bytes(original)
    benchmax("run", "artifact", "--sandbox", "off").error(1)
    assert marker.exists()
