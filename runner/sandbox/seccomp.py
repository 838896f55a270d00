"""Which system calls a sandboxed process may not make, compiled to the program the kernel runs before each of them.

Comes in: the machine's architecture. Goes out: bytes, an array of `struct sock_filter`, as `prctl` and bubblewrap take
it. A call that is refused fails with an error number, never with a signal: a library that only tries whether a call is
there goes on without it.

Refused is what an ordinary program never needs and what widens a hole elsewhere: other processes' memory, mounts and
namespaces, kernel interfaces with a long history of mistakes, and input pushed into a terminal. `clone3` takes its
flags by pointer, where no filter can see them, so it is said not to exist and libraries use `clone`.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Final

from runner.errors import SandboxUnavailableError
from runner.sandbox.syscalls import ARCHITECTURES, Architecture

REFUSED: Final[tuple[str, ...]] = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    # mounts and namespaces
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "setns", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd",
    # programs and queues that run in the kernel
    "bpf", "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd",
    # keys are shared by all processes of a user
    "add_key", "request_key", "keyctl",
    # the machine as a whole
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff",
    "acct", "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
    "vhangup", "iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "nfsservctl",
)  # fmt: skip
"""Fail with EPERM whatever their arguments are."""

MISSING: Final[tuple[str, ...]] = ("clone3",)
"""Fail with ENOSYS, as on a kernel that does not have them."""

NAMESPACES: Final = 0x7E020000
"""All `CLONE_NEW…` flags but time: mount, cgroup, uts, ipc, user, pid, net."""

TIME_NAMESPACE: Final = 0x80
"""`CLONE_NEWTIME`; of `clone` these bits are the exit signal."""

TERMINAL_REQUESTS: Final[tuple[int, ...]] = (0x5412, 0x541C, 0x5423)
"""`TIOCSTI` and `TIOCLINUX` push input into a terminal, `TIOCSETD` changes what drives it."""

UNIX: Final = 1
SOCKET_FAMILIES: Final[tuple[int, ...]] = (2, 10, 16)
"""IPv4, IPv6, and netlink, which name look-up needs. Others reach hypervisors, or code that is seldom tested."""

LOAD_WORD: Final = 0x20
JUMP_EQUAL: Final = 0x15
JUMP_AT_LEAST: Final = 0x35
JUMP_ANY_BIT: Final = 0x45
RETURN: Final = 0x06
"""The operations that are used, of `linux/bpf_common.h`."""

ALLOW: Final = 0x7FFF0000
FAIL: Final = 0x00050000
"""`SECCOMP_RET_ALLOW`, and `SECCOMP_RET_ERRNO`, to which the error number is added."""

_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENTS: Final = 16
"""Offsets in `struct seccomp_data`; an argument has eight bytes, the lower four first on both machines."""


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One operation; where it jumps to is a name until all positions are known. An empty name is the next one."""

    operation: int
    operand: int
    then: str = ""
    otherwise: str = ""
    label: str = ""


def program(machine: str, *, unix_sockets: bool) -> bytes:
    """Compile the filter for a machine.

    Args:
        machine: As `os.uname().machine` has it.
        unix_sockets: Whether Unix sockets may be made. Where the caller's file system is in sight, one of them is
            enough to talk to a key agent or a container engine, and no Landlock rule keeps it from connecting. Pairs
            that are connected to each other may be made in any case.

    Raises:
        SandboxUnavailableError: its system calls are not known here.
    """
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise SandboxUnavailableError(
            f"cannot filter system calls: their numbers on {machine} are not known.",
            hint=f"Use one of these machines: {', '.join(sorted(ARCHITECTURES))}; or --sandbox off.",
        )
    return _assemble(_instructions(architecture, (UNIX, *SOCKET_FAMILIES) if unix_sockets else SOCKET_FAMILIES))


def _instructions(architecture: Architecture, families: tuple[int, ...]) -> list[_Instruction]:
    numbers = architecture.numbers
    code = [
        _Instruction(LOAD_WORD, _ARCHITECTURE),
        _Instruction(JUMP_EQUAL, architecture.audit, otherwise="refuse"),
        _Instruction(LOAD_WORD, _NUMBER),
    ]
    if architecture.foreign_from is not None:
        code.append(_Instruction(JUMP_AT_LEAST, architecture.foreign_from, then="refuse"))
    code += [_Instruction(JUMP_EQUAL, numbers[name], then=name) for name in ("clone", "unshare", "ioctl", "socket")]
    code += [_Instruction(JUMP_EQUAL, numbers[name], then="missing") for name in MISSING]
    code += [_Instruction(JUMP_EQUAL, numbers[name], then="refuse") for name in REFUSED if name in numbers]
    code += [
        _Instruction(RETURN, ALLOW),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="clone"),
        _Instruction(JUMP_ANY_BIT, NAMESPACES, then="refuse", otherwise="permit"),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="unshare"),
        _Instruction(JUMP_ANY_BIT, NAMESPACES | TIME_NAMESPACE, then="refuse", otherwise="permit"),
        _Instruction(LOAD_WORD, _ARGUMENTS + 8, label="ioctl"),
        *(_Instruction(JUMP_EQUAL, request, then="refuse") for request in TERMINAL_REQUESTS),
        _Instruction(RETURN, ALLOW),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="socket"),
        *(_Instruction(JUMP_EQUAL, family, then="permit") for family in families),
        _Instruction(RETURN, FAIL | errno.EAFNOSUPPORT),
        _Instruction(RETURN, ALLOW, label="permit"),
        _Instruction(RETURN, FAIL | errno.ENOSYS, label="missing"),
        _Instruction(RETURN, FAIL | errno.EPERM, label="refuse"),
    ]
    return code


def _assemble(code: list[_Instruction]) -> bytes:
    places = {instruction.label: place for place, instruction in enumerate(code) if instruction.label}
    result = bytearray()
    for place, instruction in enumerate(code):
        then, otherwise = (
            places[name] - place - 1 if name else 0 for name in (instruction.then, instruction.otherwise)
        )
        # struct sock_filter: operation, two distances, operand; a distance that does not fit, or goes back, raises
        result += struct.pack("=HBBI", instruction.operation, then, otherwise, instruction.operand)
    return bytes(result)
