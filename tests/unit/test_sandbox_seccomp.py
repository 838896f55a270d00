"""The system call filter, run as the kernel runs it: which calls pass, and with which error the others fail."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from runner.errors import SandboxUnavailableError
from runner.sandbox import seccomp
from runner.sandbox.syscalls import ARCHITECTURES, Architecture
from tests.conftest import require

PASS = 0
MACHINES = sorted(ARCHITECTURES)
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(program: bytes, number: int, *arguments: int, audit: int) -> int:
    """Run a filter on one call, and return the error number it fails with, or 0 where it passes."""
    code = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    accumulator, place = 0, 0
    while True:
        operation, then, otherwise, operand = code[place]
        place += 1
        match operation:
            case seccomp.LOAD_WORD:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case seccomp.JUMP_EQUAL:
                place += then if accumulator == operand else otherwise
            case seccomp.JUMP_AT_LEAST:
                place += then if accumulator >= operand else otherwise
            case seccomp.JUMP_ANY_BIT:
                place += then if accumulator & operand else otherwise
            case seccomp.KEEP_BITS:
                accumulator &= operand
            case seccomp.RETURN:
                if operand == seccomp.ALLOW:
                    return PASS
                assert operand & 0xFFFF0000 == seccomp.FAIL, "kills, traps or asks somebody"
                return int(operand & 0xFFFF)
            case _:
                pytest.fail(f"operation {operation:#x}")


class Filter:
    """The filter of one machine, asked by names."""

    def __init__(self, machine: str, *, own_view: bool = True) -> None:
        self.machine: Architecture = ARCHITECTURES[machine]
        self.program = seccomp.program(machine, own_view=own_view)

    def __call__(self, name: str, *arguments: int) -> int:
        return verdict(self.program, self.machine.numbers[name], *arguments, audit=self.machine.audit)


@pytest.fixture(params=MACHINES)
def ask(request: pytest.FixtureRequest) -> Filter:
    """The filter for a program that has a view of its own."""
    return Filter(request.param)


@pytest.fixture(params=MACHINES)
def in_sight(request: pytest.FixtureRequest) -> Filter:
    """The filter for one that has the caller's files and processes in sight."""
    return Filter(request.param, own_view=False)


@pytest.mark.parametrize("own_view", [True, False])
@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_refused_fails_with_eperm(machine: str, own_view: bool) -> None:
    ask = Filter(machine, own_view=own_view)
    assert {name: ask(name) for name in seccomp.REFUSED if name in ask.machine.numbers} == {
        name: errno.EPERM for name in seccomp.REFUSED if name in ask.machine.numbers
    }


def test_every_name_that_is_refused_is_a_call_of_some_machine() -> None:
    known = {name for machine in ARCHITECTURES.values() for name in machine.numbers}
    in_sight = {*seccomp.IN_SIGHT_REFUSED, *seccomp.IN_SIGHT_MISSING, *seccomp.IN_SIGHT_UNSUPPORTED}
    assert {*seccomp.REFUSED, *seccomp.MISSING, *in_sight, *seccomp.OWN_PROCESS, *dict(seccomp.OWN_PRIORITY)} <= known


@pytest.mark.parametrize("own_view", [True, False])
@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_no_rule_names_pass(machine: str, own_view: bool) -> None:
    ask = Filter(machine, own_view=own_view)
    named = set(ask.machine.numbers.values())
    limit = ask.machine.foreign_from or 2**32
    others = [number for number in (*range(600), limit - 1) if number not in named]
    assert len(others) > 480
    assert {verdict(ask.program, number, audit=ask.machine.audit) for number in others} == {PASS}


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (seccomp.IN_SIGHT_REFUSED, errno.EPERM),
        (seccomp.IN_SIGHT_MISSING, errno.ENOSYS),
        (seccomp.IN_SIGHT_UNSUPPORTED, errno.EOPNOTSUPP),
    ],
)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_reaches_the_caller_past_landlock_fails_where_the_caller_is_in_sight(
    machine: str, names: tuple[str, ...], number: int
) -> None:
    ask, in_sight = Filter(machine), Filter(machine, own_view=False)
    there = [name for name in names if name in ask.machine.numbers]
    assert {in_sight(name) for name in there} == {number}
    assert {ask(name) for name in there} == {PASS}


@pytest.mark.parametrize("name", seccomp.OWN_PROCESS)
def test_only_its_own_limits_and_schedule_are_changed(in_sight: Filter, name: str) -> None:
    assert in_sight(name, 0, 7) == in_sight(name, 1 << 32, 7) == PASS
    assert in_sight(name, 1, 7) == in_sight(name, 0xFFFFFFFF) == errno.EPERM


@pytest.mark.parametrize(("name", "process"), seccomp.OWN_PRIORITY)
def test_only_its_own_priority_is_changed(in_sight: Filter, ask: Filter, name: str, process: int) -> None:
    others = [(process, 1), *((kind, who) for kind in (0, 1, 2, 3) if kind != process for who in (0, 1))]
    assert in_sight(name, process, 0, 5) == PASS
    assert {in_sight(name, kind, who, 5) for kind, who in others} == {errno.EPERM}
    assert {ask(name, kind, who, 5) for kind, who in others} == {PASS}


def test_clone3_seems_not_to_exist_since_no_filter_can_see_its_flags(ask: Filter) -> None:
    assert ask("clone3") == errno.ENOSYS


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_no_namespace_of_any_kind_can_be_made(ask: Filter, flag: int) -> None:
    assert ask("clone", flag | 17) == ask("unshare", flag) == errno.EPERM
    # high bits that a careless filter would be led astray by
    assert ask("clone", 1 << 40 | flag | 17) == errno.EPERM


def test_a_time_namespace_is_told_from_an_exit_signal(ask: Filter) -> None:
    assert ask("unshare", 0x80) == errno.EPERM
    assert ask("clone", 0x80) == PASS


@pytest.mark.parametrize(
    "flags", [17, 0x3D0F00, 0x4111], ids=["fork", "a thread", "vfork"]
)  # as the C library passes them
def test_processes_and_threads_can_be_made(ask: Filter, flags: int) -> None:
    assert ask("clone", flags) == PASS


def test_files_and_working_directory_can_be_unshared(ask: Filter) -> None:
    assert ask("unshare", 0x400) == ask("unshare", 0x200) == PASS


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x5423, 0xFFFFFFFF_00005412])
def test_nothing_is_pushed_into_a_terminal(ask: Filter, request_number: int) -> None:
    assert ask("ioctl", 0, request_number) == errno.EPERM


@pytest.mark.parametrize("request_number", [0x5401, 0x5413, 0x541B, 0x5421, 0x40049409])
def test_other_requests_to_devices_pass(ask: Filter, request_number: int) -> None:
    assert ask("ioctl", 0, request_number) == PASS


@pytest.mark.parametrize("family", range(50))
def test_sockets_are_for_the_internet_and_for_other_processes(ask: Filter, family: int) -> None:
    assert ask("socket", family) == (PASS if family in (1, 2, 10, 16) else errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
def test_unix_sockets_can_be_refused(machine: str) -> None:
    ask = Filter(machine, own_view=False)
    assert ask("socket", 1) == errno.EAFNOSUPPORT
    assert ask("socket", 2) == PASS


@pytest.mark.parametrize("flags", [0, 0x800, 0x80000, 0x80800])
def test_socket_pairs_stay_connected_to_each_other(ask: Filter, in_sight: Filter, flags: int) -> None:
    kinds = range(16)
    assert {kind for kind in kinds if in_sight("socketpair", 1, kind | flags) == PASS} == {1, 5}
    assert {in_sight("socketpair", 1, kind | flags) for kind in kinds} == {PASS, errno.EPROTONOSUPPORT}
    assert {ask("socketpair", 1, kind | flags) for kind in kinds} == {PASS}


@pytest.mark.parametrize("family", [0, 2, 10, 16, 30, 40])
def test_socket_pairs_are_unix_sockets(ask: Filter, in_sight: Filter, family: int) -> None:
    assert ask("socketpair", family, 1) == in_sight("socketpair", family, 1) == errno.EAFNOSUPPORT


@pytest.mark.parametrize("audit", [0x40000003, 0x40000028, 0, 0xFFFFFFFF], ids=["i386", "arm", "none", "all bits"])
def test_calls_of_another_architecture_fail(ask: Filter, audit: int) -> None:
    assert verdict(ask.program, ask.machine.numbers["socket"], 1, audit=audit) == errno.EPERM
    assert verdict(ask.program, 0, audit=audit) == errno.EPERM


def test_calls_of_the_x32_abi_fail() -> None:
    ask = Filter("x86_64")
    for number in (0x40000000, 0x40000000 + 56, 0x7FFFFFFF, 0xFFFFFFFF):
        assert verdict(ask.program, number, audit=ask.machine.audit) == errno.EPERM


def test_a_machine_whose_calls_are_not_known_is_refused() -> None:
    with pytest.raises(SandboxUnavailableError, match="their numbers on riscv64 are not known"):
        seccomp.program("riscv64", own_view=True)


def test_the_program_is_short_enough_for_the_kernel(ask: Filter) -> None:
    assert len(ask.program) % 8 == 0
    assert len(ask.program) // 8 <= 4096


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = HEADERS[machine]
    require(header.exists(), f"{header} (the package linux-libc-dev)")
    found = {
        name: int(number)
        for name, number in re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
    }
    # a header may be older than a call
    newest = max(found.values())
    ours = {name: number for name, number in ARCHITECTURES[machine].numbers.items() if number <= newest}
    assert {name: found[name] for name in ours} == ours
    assert len(ours) > 50
