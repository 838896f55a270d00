"""What a program may take of the machine: with a limit, and without."""

from __future__ import annotations

import os
from typing import get_args

import pytest

from runner.sandbox.policy import Level
from runner.sandbox.resources import tasks_of
from tests.confined import Box, Caller, box
from tests.conftest import require

CONFINED: tuple[Level, ...] = ("landlock", "namespaces")
MIB = 1024**2

FORK = """
import os
reading, writing = os.pipe()
children = []
try:
    for _ in range(100):
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        children.append(pid)
    print("all")
except BlockingIOError:
    print(len(children))
os.close(writing)
for pid in children:
    os.waitpid(pid, 0)
"""
ALLOCATE = """
try:
    bytearray(400 * 1024**2)
    print("can")
except MemoryError:
    print("cannot")
"""
OPEN = """
import os
try:
    print(len([os.open("/dev/null", os.O_RDONLY) for _ in range(200)]))
except OSError as error:
    print(error.strerror)
"""
WRITE = """
import os
file = os.open("large", os.O_CREAT | os.O_WRONLY)
try:
    os.pwrite(file, b"x", 10 * 1024**2)
    print("can")
except OSError as error:
    print(error.strerror)
"""
FILL = """
import os, sys
file = os.open(sys.argv[1] + "/full", os.O_CREAT | os.O_WRONLY)
try:
    os.posix_fallocate(file, 0, 300 * 1024**2)
    print("can")
except OSError as error:
    print(error.strerror)
"""


def spare(confined: Box, processes: int) -> tuple[tuple[str, int, int], ...]:
    """A limit that leaves room for some processes beyond those that the user has."""
    has = tasks_of(confined.user) if confined.user == confined.machine.uid != 0 or confined.level == "off" else 0
    return (("NPROC", has + processes, has + processes),)


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("level", CONFINED)
def test_a_fork_bomb_ends_at_the_limit(level: Level, caller: Caller) -> None:
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    with box(level, caller) as confined:
        assert confined.python(FORK) == "all"
        assert 1 <= int(confined.python(FORK, rlimits=spare(confined, 20))) <= 20


def test_root_that_stays_root_is_not_held_to_a_number_of_processes() -> None:
    require(os.geteuid() == 0, "root")
    with box("off", "root") as confined:
        assert confined.python(FORK, rlimits=(("NPROC", 20, 20),)) == "all"


@pytest.mark.parametrize("level", get_args(Level))
def test_memory_ends_at_the_limit(level: Level) -> None:
    with box(level, "ordinary") as confined:
        assert confined.python(ALLOCATE) == "can"
        assert confined.python(ALLOCATE, rlimits=(("DATA", 200 * MIB, 200 * MIB),)) == "cannot"


@pytest.mark.parametrize("level", get_args(Level))
def test_descriptors_and_files_end_at_the_limit(level: Level) -> None:
    with box(level, "ordinary") as confined:
        assert confined.python(OPEN) == "200"
        assert confined.python(OPEN, rlimits=(("NOFILE", 150, 150),)) == "Too many open files"
        assert confined.python(WRITE) == "can"
        assert confined.python(WRITE, rlimits=(("FSIZE", 5 * MIB, 5 * MIB),)) == "File too large"


@pytest.mark.parametrize("folder", ["/dev/shm", "/tmp"])
def test_memory_that_looks_like_files_is_bounded(folder: str) -> None:
    with box("namespaces", "ordinary") as confined:
        assert confined.python(FILL, folder) == "No space left on device"


def test_shared_memory_of_roots_workers_is_bounded_at_landlock_too() -> None:
    require(os.geteuid() == 0, "root")
    with box("landlock", "root") as confined:
        assert confined.python(FILL, "/dev/shm") == "No space left on device"
