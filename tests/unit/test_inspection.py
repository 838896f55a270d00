"""Asking a worker where it is: by message, by signal, and reading what its interpreter has written."""

from __future__ import annotations

import asyncio
import faulthandler
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner import inspection
from runner.errors import FrameError
from runner.inspection import Inspector
from runner.protocol import Inspect, Inspected

CODE = Path("/cache/worker")

HELD = """\
Thread 0x1 (most recent call first):
  File "/cache/worker/watchdog.py", line 87 in _run
  File "/usr/lib/python3.12/threading.py", line 1030 in _bootstrap

Thread 0x2 (most recent call first):
  File "other.py", line 3 in other

Current thread 0x3 (most recent call first):
  File "/usr/lib/python3.12/re/__init__.py", line 167 in match
  File "<frozen importlib>", line 1 in f
  File "env.py", line 70 in reward
  File "/cache/worker/serve.py", line 9 in main
"""

CRASHED = """\
Fatal Python error: Segmentation fault

Current thread 0x3 (most recent call first):
  File "env.py", line 5 in deep

Extension modules: msgspec._core (total: 1)
"""


class Setting:
    """A worker that is played by the test."""

    def __init__(self) -> None:
        self.asked: list[Inspect] = []
        self.signals = 0
        self.dump = os.memfd_create("dump")
        self.it = Inspector(self.asked.append, self.signal, self.dump, CODE)
        self.writes = b""

    def signal(self) -> None:
        self.signals += 1
        os.write(self.dump, self.writes)

    async def answer(self, where: str, stack: str = "") -> None:
        while not self.asked:
            await asyncio.sleep(0)
        self.it.answered(Inspected(inspection=self.asked.pop().inspection, where=where, stack=stack))


@pytest.fixture
async def setting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    monkeypatch.setattr(inspection, "INSPECT_S", 0.05)
    monkeypatch.setattr(inspection, "DUMP_S", 0.05)
    setting = Setting()
    yield setting
    setting.it.close()


async def test_an_answer_says_where_it_is_and_no_signal_is_needed(setting: Setting) -> None:
    asking = asyncio.ensure_future(setting.it.ask_all())
    await setting.answer("env.py:3 in f", "stack")
    seen = await asking
    assert seen is not None
    assert (seen.text, seen.stack) == ("It was at env.py:3 in f.", "stack")
    assert (setting.signals, setting.it.asking) == (0, False)


async def test_a_loop_that_waits_for_several_calls_is_said_to_wait(setting: Setting) -> None:
    asking = asyncio.ensure_future(setting.it.ask(None))
    await setting.answer("")
    seen = await asking
    assert seen is not None
    assert seen.text == "Its event loop was waiting."


async def test_without_an_answer_the_interpreter_is_asked_and_its_own_threads_left_out(setting: Setting) -> None:
    setting.writes = HELD.encode()
    seen = await setting.it.ask_all()
    assert seen is not None
    assert seen.text == "It was at env.py:70 in reward."
    assert seen.stack.startswith("Current thread")
    assert "other.py" in seen.stack
    assert "watchdog" not in seen.stack
    assert setting.signals == 1


async def test_one_that_has_not_answered_before_is_asked_by_signal_at_once(setting: Setting) -> None:
    assert await setting.it.ask(1) is None
    assert setting.it.asking
    setting.writes = HELD.encode()
    assert await setting.it.ask_all() is not None
    assert [question.call for question in setting.asked] == [1]


async def test_one_that_says_nothing_at_all_is_not_waited_for(setting: Setting) -> None:
    assert await setting.it.ask_all() is None


async def test_a_late_answer_is_taken_and_a_second_one_or_one_to_nothing_refused(setting: Setting) -> None:
    assert await setting.it.ask(None) is None
    await setting.answer("late")
    for inspection_number in (1, 99):
        with pytest.raises(FrameError, match="an inspected message out of turn"):
            setting.it.answered(Inspected(inspection=inspection_number, where="", stack=""))


async def test_what_was_written_at_a_crash_is_read(setting: Setting) -> None:
    assert setting.it.read() is None
    os.write(setting.dump, CRASHED.encode())
    seen = setting.it.read()
    assert seen is not None
    assert seen.text == "It was at env.py:5 in deep."
    assert seen.stack.startswith("Fatal Python error: Segmentation fault\n\nCurrent thread")


@pytest.mark.parametrize("written", [b"", b"no frames here", b"\xff\xfe" * 1000, b"\0" * 1000])
async def test_what_is_no_account_of_the_interpreter_is_none(setting: Setting, written: bytes) -> None:
    os.write(setting.dump, written)
    assert setting.it.read() is None


async def test_what_this_interpreter_writes_is_understood(setting: Setting) -> None:
    faulthandler.dump_traceback(setting.dump, all_threads=True)
    seen = setting.it.read()
    assert seen is not None
    assert "test_what_this_interpreter_writes_is_understood" in seen.text


async def test_closing_twice_is_harmless(setting: Setting) -> None:
    setting.it.close()
