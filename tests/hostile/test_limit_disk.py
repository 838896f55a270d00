"""A worker that fills the disk is ended, however it does it: one file, many files, empty ones, hidden ones."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.confined import Caller
from tests.hostile.taking import MIB, take

ONE_FILE = """
file = open("large", "wb", buffering=0)
try:
    while True:
        file.write(bytes(2**20))
except OSError as error:
    print(error.strerror)
"""
ONE_FILE_BY_ANOTHER_PROGRAM = """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.execv("/bin/dd", ["dd", "if=/dev/zero", "of=large", "bs=1M", "count=100"])
"""
MANY_FILES = """
import time
for number in range(1000):
    open(str(number), "wb").write(bytes(2**20))
    time.sleep(0.005)
print("could")
"""
EMPTY_FILES = """
import time
for number in range(100_000):
    open(str(number), "x")
    if number % 2000 == 0:
        time.sleep(0.2)
print("could")
"""
WITHOUT_NAMES = """
import tempfile, time
held = []
for number in range(1000):
    held.append(tempfile.TemporaryFile())
    held[-1].write(bytes(2**20))
    held[-1].flush()
    time.sleep(0.005)
print("could")
"""
BEHIND_A_CLOSED_DOOR = """
import os, time
os.mkdir("closed")
os.chdir("closed")
os.chmod(".", 0o300)
for number in range(1000):
    open(str(number), "wb").write(bytes(2**20))
    time.sleep(0.005)
print("could")
"""
TOO_DEEP = """
import os, time
for _ in range(2500):
    os.mkdir("inner")
    os.chdir("inner")
time.sleep(1000)
"""
UNTIL_KILLED = {
    "many files": MANY_FILES,
    "empty files": EMPTY_FILES,
    "without names": WITHOUT_NAMES,
    "behind a closed door": BEHIND_A_CLOSED_DOOR,
    "too deep": TOO_DEEP,
}


@pytest.mark.parametrize("caller", get_args(Caller))
def test_what_fills_the_disk_is_ended_and_removed(caller: Caller) -> None:
    limits = {"file_bytes": 5 * MIB, "disk_bytes": 20 * MIB}
    told = take(caller, limits, {"one file": ONE_FILE, "dd": ONE_FILE_BY_ANOTHER_PROGRAM, **UNTIL_KILLED})
    for level, taken in told.taken.items():
        assert (taken["one file"].how, taken["one file"].said) == ("exit code 0", "File too large"), level
        assert taken["dd"].how == "SIGXFSZ (-25)", level
        for name in UNTIL_KILLED:
            assert (taken[name].how, taken[name].reached) == ("SIGKILL (-9)", ("disk_bytes",)), (level, name)
        assert not [name for name, found in taken.items() if found.left], level
