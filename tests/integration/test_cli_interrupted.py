"""Ctrl-C and its relatives: what is there is kept, nothing is left running, and twice is quicker."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine, Finished

pytestmark = pytest.mark.integration

GROUP_BY_GROUP = ["--group-size", "2", "--max-in-flight", "2"]


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def interrupt(
    benchmax: CommandLine, *arguments: str, at: str | Path, send: list[signal.Signals], makes: str = ""
) -> Finished:
    with benchmax.running(*arguments, makes=makes) as running:
        if isinstance(at, Path):
            running.wait_until_there_is(at)
        else:
            running.wait_for(at)
        for number in send:
            running.send(number)
            running.wait_for(number.name)
        finished = running.finish()
    assert finished.code == 130, finished.err
    assert "Traceback" not in finished.err
    assert "benchmax: error" not in finished.err
    assert finished.err.splitlines()[-1].startswith("benchmax: interrupted")
    return finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_interrupted_keeps_what_it_has(benchmax: CommandLine, number: signal.Signals) -> None:
    benchmax.artifact(mode="later ones wait", size=3)
    options = [*GROUP_BY_GROUP, "--json-out", "r.json"]
    finished = interrupt(benchmax, "run", "artifact", *options, at="waiting now", makes="r.json", send=[number])
    assert "0-example0-1  finished" in finished.out
    assert "2 ok · 0 failed · 4 missing of 6 rollouts" in finished.out
    assert "partial" in finished.err
    report = json.loads((benchmax.cwd / "r.json").read_bytes())
    assert report["interrupted"] is True
    assert [len(group["outcomes"]) for group in report["groups"]] == [2, 0, 0]


def test_a_second_signal_does_not_wait_for_code_that_will_not_stop(benchmax: CommandLine) -> None:
    marker = benchmax.cwd.parent / "blocked"
    benchmax.artifact(mode="later ones block", marker=str(marker))
    sent = [signal.SIGINT, signal.SIGINT]
    command = ("run", "artifact", *GROUP_BY_GROUP, "--sandbox", "off", "--json")
    finished = interrupt(benchmax, *command, at=marker, send=sent)
    assert "killing what is under way" in finished.err
    assert json.loads(finished.out)["interrupted"] is True


def test_a_third_signal_leaves_at_once_and_nothing_is_left_all_the_same(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="constructor hangs")
    with benchmax.running("run", "artifact") as running:
        running.wait_for("starting 1 worker")
        for _ in range(3):
            running.send(signal.SIGINT)
        assert running.finish().code == 130
        # what it would have removed
        for path in benchmax.tmp.iterdir():
            assert path.name.startswith("benchmax-")
            shutil.rmtree(path)


def test_an_interruption_while_the_environment_is_constructed(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="constructor hangs")
    finished = interrupt(benchmax, "run", "artifact", at="starting 1 worker", send=[signal.SIGINT])
    assert finished.out == ""
    assert "before a rollout ran" in finished.err


@pytest.mark.parametrize("command", ["run artifact", "prepare artifact", "bundle tiny.py:Tiny --out new"])
def test_an_interruption_while_packages_are_installed(benchmax: CommandLine, command: str) -> None:
    benchmax.cache = benchmax.cwd.parent / "cold"
    benchmax.artifact()
    benchmax.source("tiny.py")
    finished = interrupt(benchmax, *command.split(), at="resolving", send=[signal.SIGINT])
    assert finished.out == ""
    assert not [*benchmax.cache.glob("venvs/*/manifest.json")]


def test_an_interruption_while_a_target_is_imported(benchmax: CommandLine) -> None:
    marker = benchmax.cwd.parent / "imported"
    source = benchmax.source("tiny.py")
    source.write_text(f"open({str(marker)!r}, 'w').close()\nimport time\ntime.sleep(600)\n")
    interrupt(benchmax, "bundle", "tiny.py:Tiny", "--here", "--out", "new", at=marker, send=[signal.SIGTERM])


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(benchmax: CommandLine) -> None:
    # as under nohup
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        benchmax.artifact(mode="later ones wait")
        with benchmax.running("run", "artifact", *GROUP_BY_GROUP) as running:
            running.wait_for("waiting now")
            running.send(signal.SIGHUP)
            running.send(signal.SIGTERM)
            finished = running.finish()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "SIGTERM: ending" in finished.err
    assert "SIGHUP" not in finished.err
