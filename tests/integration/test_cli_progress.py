"""Progress of the real command: on a real terminal, whose keys and whose end are signals, and on a pipe."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.command_line import PROGRAM, CommandLine
from tests.terminal import Terminal

pytestmark = pytest.mark.integration

ON_ITS_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
GROUP_BY_GROUP: Final = ("--group-size", "2", "--max-in-flight", "2")


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


@contextlib.contextmanager
def on_terminal(benchmax: CommandLine, terminal: Terminal, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL, str(PROGRAM), *arguments],
        cwd=benchmax.cwd,
        env=benchmax.environment({"TERM": "xterm-256color"}),
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        start_new_session=True,
    )
    try:
        terminal.release()
        yield process
    finally:
        process.kill()
        process.wait()
    assert [path.name for path in benchmax.tmp.iterdir()] == [], "temporary files left behind"


def outcomes(path: Path) -> list[int]:
    report = json.loads(path.read_bytes())
    assert report["interrupted"] is True
    return [len(group["outcomes"]) for group in report["groups"]]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_run_shows_how_it_stands_and_ctrl_c_keeps_what_there_is(benchmax: CommandLine, columns: int) -> None:
    benchmax.artifact(mode="later ones wait", size=3)
    options = (*GROUP_BY_GROUP, "--record", "rec", "--json-out", "r.json", "--report", "r.html")
    with Terminal(40, columns) as terminal:
        with on_terminal(benchmax, terminal, "run", "artifact", *options) as process:
            # one refresh may arrive in pieces
            parts = ("2 of 6 rollouts done", "33 %", "0 model calls in flight", "2 ok", "0 failed", "4 to go")
            terminal.until(lambda lines: all(part in " ".join(lines) for part in parts))
            terminal.type(b"\x03")
            assert process.wait() == 130
        seen = terminal.until(lambda lines: "--resume rec" in " ".join(lines[-3:]))
        assert not any("to go" in line for line in seen), "the block is gone"
        assert terminal.screen.cursor_is_shown
    assert outcomes(benchmax.cwd / "r.json") == [2, 0, 0]
    assert (benchmax.cwd / "r.html").stat().st_size > 1000
    recorded = (benchmax.cwd / "rec" / "outcomes.jsonl").read_bytes().splitlines()
    assert len(recorded) == 2


def test_a_terminal_that_is_closed_ends_the_run_in_order(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="later ones wait", size=3)
    command = ("run", "artifact", *GROUP_BY_GROUP, "--json-out", "r.json")
    with Terminal() as terminal, on_terminal(benchmax, terminal, *command) as process:
        terminal.until_there_is("2 of 6 rollouts done")
        terminal.hang_up()
        assert process.wait() == 130
    assert outcomes(benchmax.cwd / "r.json") == [2, 0, 0]


def test_the_second_ctrl_c_leaves_a_terminal_that_can_be_used(benchmax: CommandLine) -> None:
    marker = benchmax.cwd.parent / "blocked"
    benchmax.artifact(mode="later ones block", marker=str(marker))
    with Terminal() as terminal:
        options = (*GROUP_BY_GROUP, "--sandbox", "off")
        with on_terminal(benchmax, terminal, "run", "artifact", *options) as process:
            terminal.until_there_is("2 to go")
            terminal.type(b"\x03")
            terminal.until_there_is("SIGINT: ending what is under way; once more kills it")
            terminal.type(b"\x03")
            assert process.wait() == 130
        terminal.until(lambda lines: "interrupted" in lines[-1] and terminal.screen.cursor_is_shown)


def test_on_a_pipe_the_last_line_says_what_became_of_all(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="one group raises", size=3)
    finished = benchmax("run", "artifact", "--group-size", "2")
    assert finished.code == 1
    lines = [line.partition("] ")[2] for line in finished.err.splitlines()]
    last = max(i for i, line in enumerate(lines) if "rollouts done" in line)
    assert lines[last] == "6 of 6 rollouts done (100 %): 4 ok, 0 failed, 2 missing"
    assert lines[last + 1] == "close: ending the workers"
    assert any(line.startswith("1 of 6 rollouts done (16 %)") for line in lines)
    assert "\x1b" not in finished.err
