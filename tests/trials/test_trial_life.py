"""The end of a trial sandbox: with its stream, its program, and whoever started it, and nothing is left."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import get_args

import pytest

from tests.confined import Caller
from tests.trials.talking import PATIENCE_S, EndedError, Talk, below, opened, program


def folders() -> set[str]:
    return {str(path) for path in Path(tempfile.gettempdir()).glob("benchmax-trial-*")}


@pytest.mark.parametrize("caller", get_args(Caller))
def test_a_caller_that_is_killed_leaves_nothing(caller: Caller) -> None:
    before = folders()
    with program(caller) as (started, stream):
        talk = Talk(stream)
        talk.said("sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & mkdir -m 0 /closed; touch /file")
        running = below(started.pid)
        assert len(running) > 4
        assert len(folders() - before) == 1
        started.send_signal(signal.SIGKILL)
        with pytest.raises(EndedError):
            talk.frame()
        talk.close()
    # the supervisor last, which removes the folder before
    for pid in running:
        _wait_gone(pid)
    assert not folders() - before


def _wait_gone(pid: int) -> None:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(watch, select.POLLIN)
        assert poller.poll(PATIENCE_S * 1000), f"process {pid} is still there"
    finally:
        os.close(watch)


@pytest.mark.parametrize("caller", get_args(Caller))
def test_whoever_kills_the_program_within_ends_the_sandbox_and_its_user_sees_the_end(caller: Caller) -> None:
    with opened(caller) as talk:
        number = talk.ask(op="exec", command=f"kill -9 {talk.ready['pid']}; sleep 1000")
        with pytest.raises(EndedError):
            talk.answer(number)


@pytest.mark.parametrize(
    "sent",
    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\2Xx", b"\0\0\0\3J{}", b"\0\0\0\2J[", b"\0\0\0\2Dx",
     b"\0\x01\x00\x01J" + b"[" * 65536, b"\0\0\0\x0aJ{\"id\":-1}"],
    ids=["too long", "empty", "unknown kind", "no number", "no JSON", "no channel", "too deep", "negative"],
)  # fmt: skip
def test_a_stream_that_makes_no_sense_is_the_end(sent: bytes) -> None:
    # the program by itself, which needs no sandbox for that
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started = subprocess.Popen(
            [sys.executable, "-c", "import sys; from runner.trials.inside.program import main; sys.exit(main())",
             str(theirs.fileno()), "one", "no"],
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        talk = Talk(ours)
        ours.sendall(sent)
        with pytest.raises(EndedError):
            talk.frame()
        talk.close()
        assert started.wait(PATIENCE_S) in (0, 2)


def test_a_request_that_is_refused_is_told_by_the_program_and_its_exit_code() -> None:
    with program("root", cpus=-1) as (started, stream):
        assert stream.recv(1) == b""
        assert started.wait(PATIENCE_S) == 3
        assert started.stderr is not None
        assert "Ask for more than nothing" in started.stderr.read().decode()
