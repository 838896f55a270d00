"""What a person sees while a run goes on: how it stands, and one line for each other thing that happens."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping

import pytest
from rich.cells import cell_len

from benchmax.envs.shared_types import RolloutOutcome
from runner.cli.progress import NOTES_AT_ONCE, Progress
from runner.record import (
    Event,
    LogLine,
    OutputEvent,
    PhaseEvent,
    RecordEvent,
    RolloutRecord,
    StallEvent,
    UnreachableEvent,
    WorkerEvent,
)
from runner.report.tally import Count
from tests.terminal import Terminal


def shown(*events: Event, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with Progress() as progress:
        for event in events:
            progress.on_event(event)
    return said(capsys)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"^\[ *[\d.]+s\] ", "", line) for line in capsys.readouterr().err.splitlines()]


def stall(*rollout_ids: str, over: bool = False, unreported: int = 0) -> StallEvent:
    return StallEvent(
        pid=7,
        rollout_ids=rollout_ids,
        where="env.py:12 in Env.run_tool",
        stack="",
        seconds=4.04,
        over=over,
        unreported=unreported,
    )


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (stall("0-ab-1"), "worker 7 is held up for 4.0 s by 0-ab-1 at env.py:12 in Env.run_tool"),
        (stall("0-ab-1", over=True), "worker 7 was held up for 4.0 s by 0-ab-1 at env.py:12 in Env.run_tool"),
        (stall("a", "b", "c"), "worker 7 is held up for 4.0 s by a and 2 more at env.py:12 in Env.run_tool"),
        (
            stall(unreported=3),
            "worker 7 is held up for 4.0 s by code outside of rollouts at env.py:12 in Env.run_tool; "
            "3 more such stalls before",
        ),
        (WorkerEvent(state="ended", pid=7, message="It is gone."), "worker ended: It is gone."),
        (UnreachableEvent(endpoint="db:1", reason="no answer"), "cannot connect to db:1: no answer"),
    ],
)
def test_what_happens_to_a_worker_is_one_line(event: Event, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(event, capsys=capsys) == [line]


# -- rollouts, where there is no terminal ------------------------------------------------------------------------


RECORD = RecordEvent(
    record=RolloutRecord(
        rollout_id="r",
        example_id="e",
        outcome=RolloutOutcome(rewards={}, termination_reason="finished"),
        origin="environment",
    )
)


def run_of(count: Count, number: int, progress: Progress, *, ok: bool = True, reason: str = "finished") -> None:
    count.begin(number)
    for _ in range(number):
        count.end(ok=ok, reason=reason)
        progress.on_event(RECORD)


def test_plain_lines_tell_the_first_then_ever_more_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    count = Count()
    with Progress(count.tally) as progress:
        count.expected = 10_000
        run_of(count, 10_000, progress)
        count.over = True
    lines = said(capsys)
    assert [line.partition(" rollouts done")[0] for line in lines] == [
        "1 of 10,000", "10 of 10,000", "100 of 10,000", "1,000 of 10,000", "10,000 of 10,000",
    ]  # fmt: skip
    assert lines[-1] == "10,000 of 10,000 rollouts done (100 %): 10,000 ok, 0 failed"


def test_what_has_no_outcome_in_the_end_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    count = Count()
    with Progress(lambda: count.tally(calls=1)) as progress:
        count.expected = 100
        count.keep(ok=True, reason="finished")
        run_of(count, 1, progress)
        run_of(count, 8, progress, ok=False, reason="out_of_luck")
        count.begin(10)
        count.over = True
        progress.on_event(PhaseEvent(phase="close", message="ending", elapsed_s=0.0))
    lines = said(capsys)
    assert lines[0] == (
        "2 of 100 rollouts done (2 %): 2 ok, 0 failed, 98 to go, 0 of them running, 1 of those done are from before, "
        "1 model call in flight"
    )
    assert lines[-2:] == [
        "100 of 100 rollouts done (100 %): 2 ok, 8 failed, 90 missing, 1 of those done are from before "
        "(failed: 8 out_of_luck)",
        "close: ending",
    ]


def test_of_many_reasons_the_most_frequent_are_told_and_all_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    count = Count()
    with Progress(count.tally) as progress:
        count.expected = 1000
        for number in range(3):
            run_of(count, 10 + number, progress, ok=False, reason=f"often {number}" + "x" * 4000)
        for number in range(200):
            run_of(count, 1, progress, ok=False, reason=f"\x1b[2Jreason {number}")
        count.over = True
    *_, last = said(capsys)
    assert re.search(r"\(failed: 12 often 2x+…, 11 often 1x+…, 10 often 0x+…, 200 other reasons\)$", last)
    assert last.isprintable()


def test_what_lasts_is_told_again_and_again_without_anything_happening(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    def until(text: str) -> None:
        while not any(text in line for line in lines):
            lines.extend(said(capsys))

    count = Count()
    with Progress(count.tally, interval_s=0.01) as progress:
        progress.on_event(PhaseEvent(phase="resolve", message="resolving", elapsed_s=0.0))
        until("still resolve: resolving (1 s)")
        count.expected = 4
        count.begin(3)
        until("0 of 4 rollouts done (0 %): 0 ok, 0 failed, 4 to go, 3 of them running")
        count.over = True
        progress.on_event(PhaseEvent(phase="close", message="ending", elapsed_s=0.0))
        until("still close: ending")


def test_what_happens_on_the_side_does_not_push_away_all_else(capsys: pytest.CaptureFixture[str]) -> None:
    logged = OutputEvent(line=LogLine(stream="log", level=40, logger="bundle", text="oh\x1b[2J no\nmore"))
    lines = shown(*[logged] * 50_000, capsys=capsys)
    withheld = [int(line.split()[2].replace(",", "")) for line in lines if line.startswith("… and ")]
    told = [line for line in lines if not line.startswith("… and ")]
    assert {*told} == {r"bundle: oh\x1b[2J no"}
    assert len(told) + sum(withheld) == 50_000
    assert NOTES_AT_ONCE <= len(told) < 1000


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_pipe_that_takes_colours_gets_plain_lines(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Progress() as progress:
        progress.note("x")
    assert re.fullmatch(r"\x1b\[2m\[ *[\d.]+s\] x\x1b\[0m\n", capsys.readouterr().err)


# -- on a terminal -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_terminal(
    monkeypatch: pytest.MonkeyPatch, *, columns: int = 80, variables: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    # the size is asked of the descriptors 0 to 2, which are not this terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in (variables or {}).items():
        monkeypatch.setenv(name, value)
    with (
        Terminal(24, columns) as terminal,
        open(terminal.slave, "w", encoding="utf-8", closefd=False) as stream,
        monkeypatch.context() as patched,
    ):
        patched.setattr(sys, "stderr", stream)
        yield terminal


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_ten_thousand_rollouts_are_one_block_that_stays_where_it_is(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Count()
    with on_terminal(monkeypatch, columns=columns) as terminal:
        with Progress(lambda: count.tally(calls=17)) as progress:
            count.expected = 20_000
            for number in range(10_000):
                bad = ["rollout_timeout", "数" * 50, "combining e\u0301\u0301", f"\x1b[2J{number}"][number // 10 % 4]
                run_of(count, 1, progress, ok=number % 10 > 0, reason=bad)
            count.begin(64)
            seen = terminal.until(
                lambda lines: "64 of them running" in " ".join(lines) and "other reasons" in lines[-1]
            )
            text = " ".join(seen)
            assert not terminal.screen.cursor_is_shown
        for part in (
            "10,000 of 20,000 rollouts done", "50 %", "17 model calls in flight", "9,000 ok", "1,000 failed",
            "10,000 to go", "64 of them running", "250 rollout_timeout", "250 combining e??", "250 other reasons",
        ):  # fmt: skip
            assert part in text
        terminal.until(lambda lines: not lines and terminal.screen.cursor_is_shown)
        assert all(cell_len(line) < columns for line in seen)
        assert len(seen) <= 10
        assert terminal.screen.lines_scrolled == 0
        # what is sent depends on how long it takes, not on how much happens
        assert len(terminal.sent) < 10_000 * 5


def test_a_phase_is_shown_with_how_long_it_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal(monkeypatch, columns=40) as terminal, Progress() as progress:
        progress.on_event(PhaseEvent(phase="install", message="a long name " * 20, elapsed_s=0.0))
        terminal.until_there_is("for 1 s")


def test_lines_of_their_own_stay_above_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count()
    count.expected = 10
    with on_terminal(monkeypatch) as terminal, Progress(count.tally) as progress:
        progress.note("one \x1b[2J")
        terminal.until_there_is("10 to go")
        progress.note("two")
        seen = terminal.until_there_is("two")
        seen = terminal.until(lambda lines: "10 to go" in lines[-1])
        assert [line.partition("] ")[2] for line in seen[:2]] == [r"one \x1b[2J", "two"]


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colours_gets_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count()
    with on_terminal(monkeypatch, variables={name: value}) as terminal:
        with Progress(count.tally) as progress:
            count.expected = 2
            progress.note("a line")
            run_of(count, 1, progress, ok=False, reason="out_of_luck")
            terminal.until_there_is("1 out_of_luck")
        assert not terminal.screen.styled
        if value == "dumb":
            assert b"\x1b" not in terminal.sent


def test_a_process_that_ends_at_once_leaves_the_cursor_to_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal(monkeypatch) as terminal, Progress() as progress:
        terminal.until(lambda _: not terminal.screen.cursor_is_shown)
        progress.abandon()
        terminal.until(lambda _: terminal.screen.cursor_is_shown)


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC, errno.EPIPE])
def test_what_cannot_be_shown_stops_nothing(reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def flush(self) -> None:
            raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(sys, "stderr", Broken())
    with Progress() as progress:
        progress.note("one")
        progress.note("two")
