"""The end of a worker in words: what is certain is said, and what may be as what may be."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from runner.inspection import Sighting
from runner.limits import MIB, Limits
from runner.obituary import Obituary
from runner.process import Exit, OutputTail
from runner.redaction import Redactor


def obituary(how: Exit | None = None, *, stderr: str = "", stdout: str = "", **limits: Any) -> Obituary:
    streams = {"stdout": OutputTail(1000), "stderr": OutputTail(1000)}
    streams["stdout"].write(stdout.encode())
    streams["stderr"].write(stderr.encode())
    launched: Any = SimpleNamespace(process=SimpleNamespace(pid=7), **streams)
    redactor = Redactor()
    redactor.learn_headers({"Authorization": "Bearer very-secret"})
    found = Obituary(launched, Limits(**limits), redactor)
    found.exit = how
    return found


PYTHON = " A compiled package can do that, or a bundle made by another Python than its metadata says."


@pytest.mark.parametrize(
    ("how", "limits", "text"),
    [
        (Exit(code=3), {}, "The worker ended by exit code 3 idle."),
        (Exit(lost=True), {}, "The worker ended by an unknown end (its supervisor was killed) idle."),
        (Exit(signal=signal.SIGTERM), {}, "The worker ended by SIGTERM (-15) idle."),
        (
            Exit(signal=signal.SIGKILL),
            {},
            "The worker ended by SIGKILL (-9) idle. It may be out of memory, or something else killed it.",
        ),
        # killed by us, so nothing else is to be guessed
        (Exit(signal=signal.SIGKILL, escalated=True), {}, "The worker ended by SIGKILL (-9) idle."),
        (Exit(signal=signal.SIGSEGV), {}, f"The worker ended by SIGSEGV (-11) idle.{PYTHON}"),
        (
            Exit(signal=signal.SIGABRT),
            {"memory_bytes": 512 * MIB},
            "The worker ended by SIGABRT (-6) idle. It may be out of memory: its limit is 512 MiB for each process."
            + PYTHON,
        ),
        (
            Exit(signal=signal.SIGKILL),
            {"memory_bytes": 512 * MIB},
            "The worker ended by SIGKILL (-9) idle. It may be out of memory: its limit is 512 MiB for each process.",
        ),
        (Exit(code=1), {"memory_bytes": 512 * MIB}, "The worker ended by exit code 1 idle."),
        # what is known to have been met is named, and nothing guessed beside it
        (
            Exit(signal=signal.SIGKILL, reached=("memory_bytes",)),
            {"memory_bytes": 512 * MIB},
            "The worker ended by SIGKILL (-9) idle. It reached limits.memory_bytes = 512 MiB.",
        ),
        (
            Exit(signal=signal.SIGKILL, reached=("processes", "disk_bytes")),
            {"processes": 9, "disk_bytes": 3 * MIB},
            "The worker ended by SIGKILL (-9) idle. It reached limits.processes = 9 and limits.disk_bytes = 3 MiB.",
        ),
        (
            Exit(signal=signal.SIGKILL, reached=("processes",)),
            {"processes": 9},
            "The worker ended by SIGKILL (-9) idle. It reached limits.processes = 9."
            " It may be out of memory, or something else killed it.",
        ),
        (
            Exit(signal=signal.SIGXFSZ),
            {"file_bytes": MIB},
            "The worker ended by SIGXFSZ (-25) idle. It reached limits.file_bytes = 1 MiB.",
        ),
        (
            Exit(code=0, left=(5, 6)),
            {},
            "The worker ended by exit code 0 idle. Of its processes 2 could not be killed: 5, 6.",
        ),
    ],
)
def test_how_it_ended(how: Exit, limits: dict[str, Any], text: str) -> None:
    assert obituary(how, **limits).ended("idle") == text


def test_where_it_was_and_what_it_wrote_is_quoted_without_secrets() -> None:
    found = obituary(Exit(code=3), stderr="one\ntwo\nthree\nBearer very-secret\n", stdout="not this")
    found.seen = Sighting("It was at env.py:1 in very-secret.", "stack of very-secret")
    assert found.ended("idle") == "The worker ended by exit code 3 idle. It was at env.py:1 in [redacted]."
    assert found.last_words == " Last output: two | three | Bearer [redacted]"
    account = found.account("worker-lost", "text", ready=True)
    assert (account.pid, account.ready, account.code, account.exit) == (7, True, "worker-lost", "exit code 3")
    assert account.output == ("two", "three", "Bearer [redacted]")
    assert account.stack == "stack of [redacted]"


def test_standard_output_is_quoted_where_nothing_was_written_to_standard_error() -> None:
    assert obituary(stdout="hello\n").last_words == " Last output: hello"
    assert obituary().last_words == ""


def test_a_kill_for_the_sake_of_a_call_says_after_how_long() -> None:
    assert obituary(cancel_grace_s=2.5).did_not_stop() == "The worker was killed 2.5 s after it was asked to stop."


def test_a_limit_that_was_met_before_a_kill_is_named_with_it() -> None:
    found = obituary(Exit(signal=signal.SIGKILL, escalated=True, reached=("processes",)), processes=9)
    assert found.did_not_stop().endswith(" It reached limits.processes = 9.")
    assert found.broke_the_protocol("what").endswith(" It reached limits.processes = 9.")
