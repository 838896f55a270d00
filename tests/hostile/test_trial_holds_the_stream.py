"""Attack: commands of a trial keep its stream, or the program at its far end, from ever ending."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import get_args

import pytest

from runner.limits import Limits
from runner.sandbox.policy import SandboxPolicy
from runner.trials.desk import TrialDesk
from runner.trials.request import TrialRequest
from tests.confined import Caller
from tests.trials.talking import Talk, below, opened


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def test_a_program_that_is_stopped_ends_with_its_stream() -> None:
    desk = TrialDesk(Limits(trial_sandboxes=1), SandboxPolicy())

    try:
        talk = await asyncio.to_thread(Talk, await desk.open(TrialRequest(rollout_id="trial")))
        # it cannot answer any more, and cannot see that its stream has ended
        talk.ask(op="exec", command="kill -STOP 2; sleep 1000")
        while not any(state_of(pid) == "T" for pid in below(os.getpid())):
            await asyncio.sleep(0)
        talk.close()
        # there is room for one, and so for the next only when it is gone
        (await desk.open(TrialRequest(rollout_id="trial"))).close()
    finally:
        await desk.aclose()


@pytest.mark.parametrize("caller", get_args(Caller))
def test_output_without_end_that_nobody_reads_is_held_up_and_ends_with_the_stream(caller: Caller) -> None:
    with opened(caller) as talk:
        number = talk.ask(op="exec", command="yes & yes >&2 & (setsid yes &) & yes; yes")
        channel, _ = talk.frame()
        assert channel in (2 * number, 2 * number + 1)


def test_a_command_that_keeps_its_output_open_in_many_processes_ends(talk: Talk) -> None:
    for _ in range(10):
        done = talk.run(
            "for i in 1 2 3 4 5; do sleep 1000 & setsid sleep 1000 & done; (yes &) ; echo begun", timeout_s=30
        )
        assert (done.exit, done.timed_out, "begun" in done.out) == (0, False, True)
    talk.said("pkill sleep; pkill yes")
