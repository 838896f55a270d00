"""Attack: commands of a trial signal, trace or find processes that are not the sandbox's."""

from __future__ import annotations

import os
import subprocess
from typing import get_args

import pytest

from tests.confined import Caller
from tests.trials.talking import EndedError, Talk, opened

SIGNAL = """python3 -c '
import os, sys
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, 9)
    except OSError as error:
        print(error.errno == 3)
' """


def test_no_process_outside_is_there_to_be_signalled(talk: Talk) -> None:
    inside = {int(name) for name in talk.said("ls /proc").split() if name.isdigit()}
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as victim:
        # a number may be that of one within, too, where there are few outside
        outside = {victim.pid, os.getpid(), os.getppid()} - inside
        assert talk.said(f"{SIGNAL} {' '.join(map(str, outside))}").split() == ["True"] * len(outside)
        assert victim.poll() is None
        victim.kill()


@pytest.mark.parametrize("caller", get_args(Caller))
def test_who_signals_all_there_is_ends_the_own_sandbox_alone(caller: Caller, of_root: Talk) -> None:
    with opened(caller) as other:
        number = other.ask(op="exec", command="kill -9 -1; python3 -c 'import os; os.kill(-1, 9)'; sleep 1000")
        with pytest.raises(EndedError):
            other.answer(number)
    assert of_root.said("echo on") == "on"


def test_shared_memory_and_queues_of_the_machine_are_others(talk: Talk) -> None:
    assert talk.said("ls -A /dev/shm; tail -n +2 /proc/sysvipc/shm; tail -n +2 /proc/sysvipc/msg") == ""
