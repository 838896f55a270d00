"""Texts of a bundle that would clear the screen, set a title or turn a line around: a terminal only shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner import RemoteError, WorkerStartError, isolate
from runner.artifact import write_artifact
from runner.provision import Cache
from tests.hostile.environments import nasty_text
from tests.integration.command_line import CommandLine, Finished
from tests.integration.isolation import bundled

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def check(*shown: str) -> None:
    for text in shown:
        assert not [char for char in text if char not in "\n\t" and not char.isprintable()], text


def ran(benchmax: CommandLine, place: str, *options: str) -> Finished:
    artifact = write_artifact(bundled(nasty_text, "NastyText", place=place), benchmax.cwd / place)
    assert artifact.path is not None
    return benchmax("run", place, "--group-size", "1", *options)


def test_a_run_shows_them_in_tables_errors_output_and_json(benchmax: CommandLine) -> None:
    finished = ran(benchmax, "rollouts", "--show-output", "--json", "--max-in-flight", "1")
    assert finished.code == 1
    check(finished.out, finished.err)
    for part in ("reason", "failure", "rollout", "last words", "reward", "error", "aclose", "printed", "logged"):
        assert part in finished.err + finished.out, part
    report = json.loads(finished.out)
    (fine,) = (o for g in report["groups"] for o in g["outcomes"] if o["termination_reason"] == "finished")
    # the JSON has them too, but as escapes
    assert fine["error"].startswith("error \x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\\ud800\x00\r\x08\x7f")


@pytest.mark.parametrize("place", ["constructor", "exit", "dataset"])
def test_a_run_that_cannot_start_shows_them_in_its_error(benchmax: CommandLine, place: str) -> None:
    finished = ran(benchmax, place, "--verbose")
    assert finished.code == 1
    check(finished.out, finished.err)
    assert r"\x1b[2J" in finished.err


async def test_what_is_raised_here_can_be_printed_by_anybody(shared_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(RemoteError) as raised:
        async with isolate(bundled(nasty_text, "NastyText", place="constructor"), cache=Cache(shared_cache)):
            pass
    check(str(raised.value), raised.value.detail)
    assert "\x1b[2J" in raised.value.remote_message
    with pytest.raises(WorkerStartError) as ended:
        async with isolate(bundled(nasty_text, "NastyText", place="exit"), cache=Cache(shared_cache)):
            pass
    check(str(ended.value), ended.value.detail)
    assert r"printed \x1b[2J" in str(ended.value)


def test_metadata_that_holds_them_is_shown_or_refused_in_one_line(benchmax: CommandLine) -> None:
    folder = benchmax.cwd / "artifact"
    write_artifact(bundled(nasty_text, "NastyText"), folder)
    metadata = json.loads((folder / "env-metadata.json").read_text())
    for change in (
        {"python_version": "3.12\x1b[2J\u202e"},
        {"benchmax_version": "0.2\x1b[2J.\u202e"},
        {"env_class_source": "class\x1b[2J X\u202e: pass"},
        {"pip_dependencies": ["a\x1b[2J\u202e"]},
    ):
        (folder / "env-metadata.json").write_text(json.dumps({**metadata, **change}))
        for command in ("inspect", "prepare"):
            finished = benchmax(command, "artifact")
            check(finished.out, finished.err)
