"""What a person sees while a run goes on: one line for each thing that happens."""

from __future__ import annotations

import re

import pytest

from runner.cli.progress import Progress
from runner.record import Event, StallEvent, UnreachableEvent, WorkerEvent


def shown(*events: Event, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with Progress() as progress:
        for event in events:
            progress.on_event(event)
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
