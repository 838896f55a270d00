"""The command line's own failures: a defect must not look like the bundle's fault, nor like a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from runner.cli import main
from runner.errors import ArtifactError, EndpointError, RunnerError, UsageError


def failing_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def execute(_: object) -> int:
        raise error

    monkeypatch.setitem(sys.modules, "runner.cli.inspect", SimpleNamespace(execute=execute))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArtifactError("it is broken.", hint="Mend it."), 1),
        (UsageError("it is broken", hint="Mend it."), 2),
        (EndpointError("it is broken.", hint="Mend it."), 3),
    ],
)
def test_who_has_to_act_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: RunnerError, code: int
) -> None:
    failing_with(monkeypatch, error)
    assert main(["inspect", "x"]) == code
    assert capsys.readouterr().err == "benchmax: error: it is broken. Mend it.\n"


def test_a_defect_of_ours_is_not_the_bundles_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_with(monkeypatch, ZeroDivisionError("oh\x1b[31m"))
    assert main(["inspect", "x"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(r"benchmax: error: this is a defect of benchmax: ZeroDivisionError: oh\x1b[31m.")
    assert said[1:] == ["benchmax: more with --verbose"]
    assert main(["inspect", "x", "--verbose"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_what_the_system_refuses_leaves_it_undecided(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_with(monkeypatch, OSError(28, "No space left on device", "/tmp/x"))
    assert main(["inspect", "x"]) == 3
    assert "No space left on device: '/tmp/x'" in capsys.readouterr().err


def test_an_error_text_from_a_bundle_stays_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_with(monkeypatch, ArtifactError("one\nbenchmax: error: two\r\x1b[2J", detail="three\x1b[2J\nfour"))
    assert main(["inspect", "x", "--verbose"]) == 1
    assert capsys.readouterr().err == ("benchmax: error: one benchmax: error: two\\x0d\\x1b[2J\nthree\\x1b[2J\nfour\n")


def test_ctrl_c_outside_of_an_event_loop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing_with(monkeypatch, KeyboardInterrupt())
    assert main(["inspect", "x"]) == 130
    assert capsys.readouterr().err == "benchmax: interrupted\n"


STUBBORN = """
import asyncio
from runner.cli.interrupt import run_interruptible
async def work():
    while True:
        try:
            print("working", flush=True)
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
run_interruptible(work(), tell=lambda text: print(text, flush=True), force=lambda: print("forced", flush=True))
"""


def test_the_third_signal_ends_what_neither_cancelling_nor_killing_did() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for expected in (["working"], ["SIGINT: ending", "working"], ["SIGINT: killing", "forced"]):
            for line in expected:
                assert process.stdout.readline().startswith(line)
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_elsewhere_than_on_linux_it_says_what_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runner.cli.sys.platform", "darwin")
    for line in ("run x", "prepare x", "bundle x.py:X --out y"):
        assert main(line.split()) == 3
        assert "needs Linux. `benchmax inspect` works here" in capsys.readouterr().err
    assert main(["inspect", "nowhere"]) == 2
