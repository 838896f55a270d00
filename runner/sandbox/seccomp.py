"""Which system calls a sandboxed process may not make, compiled to the program the kernel runs before each of them.

Comes in: the machine's architecture, and whether the process has a view of its own. Goes out: bytes, an array of
`struct sock_filter`, as `prctl` and bubblewrap take it. A call that is refused fails with an error number, never with a
signal: a library that only tries whether a call is there goes on without it.

Refused is what an ordinary program never needs and what widens a hole elsewhere: other processes' memory, mounts and
namespaces, kernel interfaces with a long history of mistakes, and input pushed into a terminal. `clone3` takes its
flags by pointer, where no filter can see them, so it is said not to exist and libraries use `clone`.

Where the caller's files and processes are in sight, more is refused: what reaches them past all that Landlock rules
over, which is the opening and naming of files, signals and tracing.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Iterable
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

IN_SIGHT_REFUSED: Final[tuple[str, ...]] = ("file_setattr",)
"""The same where the caller's files are in sight: flags of files that were not opened."""

IN_SIGHT_MISSING: Final[tuple[str, ...]] = (
    # memory, semaphores and messages of all processes of a user, which also stay when the process is gone
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
    # names of files in folders that may not be listed, as soon as somebody else opens them
    "inotify_init", "inotify_init1",
)  # fmt: skip
"""Fail with ENOSYS where the caller's files and processes are in sight."""

IN_SIGHT_UNSUPPORTED: Final[tuple[str, ...]] = (
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "getxattr", "lgetxattr", "fgetxattr", "getxattrat",
    "listxattr", "llistxattr", "flistxattr", "listxattrat", "removexattr", "lremovexattr", "fremovexattr",
    "removexattrat",
)  # fmt: skip
"""Extended attributes fail with EOPNOTSUPP there, as on a file system without them; programs that copy files mind no
other error."""

OWN_PROCESS: Final[tuple[str, ...]] = ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""Their first argument is a process; where others are in sight, only 0 passes, which is the one that calls.

Not `sched_setaffinity`: thread libraries name their own threads by number in it, and give up when it fails."""

OWN_PRIORITY: Final[tuple[tuple[str, int], ...]] = (("setpriority", 0), ("ioprio_set", 1))
"""The same for calls whose first argument says what the second one is, and what it has to be: a process."""

NAMESPACES: Final = 0x7E020000
"""All `CLONE_NEW…` flags but time: mount, cgroup, uts, ipc, user, pid, net."""

TIME_NAMESPACE: Final = 0x80
"""`CLONE_NEWTIME`; of `clone` these bits are the exit signal."""

TERMINAL_REQUESTS: Final[tuple[int, ...]] = (0x5412, 0x541C, 0x5423)
"""`TIOCSTI` and `TIOCLINUX` push input into a terminal, `TIOCSETD` changes what drives it."""

UNIX: Final = 1
SOCKET_FAMILIES: Final[tuple[int, ...]] = (2, 10, 16)
"""IPv4, IPv6, and netlink, which name look-up needs. Others reach hypervisors, or code that is seldom tested."""

PAIRS: Final[tuple[int, ...]] = (1, 5)
"""Kinds of socket pairs that are connected for good, `SOCK_STREAM` and `SOCK_SEQPACKET`. One of datagrams can be
connected anew, to the socket file of the system's log, for one."""

PAIR_KIND: Final = 0xF
"""The bits of a socket's kind that are no flags."""

LOAD_WORD: Final = 0x20
JUMP_EQUAL: Final = 0x15
JUMP_AT_LEAST: Final = 0x35
JUMP_ANY_BIT: Final = 0x45
KEEP_BITS: Final = 0x54
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


@functools.cache
def program(machine: str, *, own_view: bool) -> bytes:
    """Compile the filter for a machine; once in a process, since it is the same for every worker.

    Args:
        machine: As `os.uname().machine` has it.
        own_view: Whether the process sees neither files nor processes of the caller. Where it does, it may make no Unix
            sockets: one is enough to talk to a key agent or a container engine, and no Landlock rule keeps it from
            connecting. Pairs that are connected to each other for good it may make. Nor may it use what else reaches
            the caller past Landlock.

    Raises:
        SandboxUnavailableError: its system calls are not known here.
    """
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise SandboxUnavailableError(
            f"cannot filter system calls: their numbers on {machine} are not known.",
            hint=f"Use one of these machines: {', '.join(sorted(ARCHITECTURES))}; or --sandbox off.",
        )
    return _assemble(_instructions(architecture, own_view))


def _instructions(architecture: Architecture, own_view: bool) -> list[_Instruction]:
    code = [
        _Instruction(LOAD_WORD, _ARCHITECTURE),
        _Instruction(JUMP_EQUAL, architecture.audit, otherwise="refuse"),
        _Instruction(LOAD_WORD, _NUMBER),
    ]
    if architecture.foreign_from is not None:
        code.append(_Instruction(JUMP_AT_LEAST, architecture.foreign_from, then="refuse"))
    code += _dispatch(architecture, own_view)
    code += [
        _Instruction(RETURN, ALLOW),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="clone"),
        _Instruction(JUMP_ANY_BIT, NAMESPACES, then="refuse", otherwise="permit"),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="unshare"),
        _Instruction(JUMP_ANY_BIT, NAMESPACES | TIME_NAMESPACE, then="refuse", otherwise="permit"),
        _Instruction(LOAD_WORD, _ARGUMENTS + 8, label="ioctl"),
        *(_Instruction(JUMP_EQUAL, request, then="refuse") for request in TERMINAL_REQUESTS),
        _Instruction(RETURN, ALLOW),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="socketpair"),
        _Instruction(JUMP_EQUAL, UNIX, then="permit" if own_view else "kind", otherwise="no-family"),
        _Instruction(LOAD_WORD, _ARGUMENTS, label="socket"),
        *(_Instruction(JUMP_EQUAL, family, then="permit") for family in ((UNIX,) if own_view else ())),
        *(_Instruction(JUMP_EQUAL, family, then="permit") for family in SOCKET_FAMILIES),
        _Instruction(RETURN, FAIL | errno.EAFNOSUPPORT, label="no-family"),
    ]
    if not own_view:
        code += [
            _Instruction(LOAD_WORD, _ARGUMENTS + 8, label="kind"),
            _Instruction(KEEP_BITS, PAIR_KIND),
            *(_Instruction(JUMP_EQUAL, kind, then="permit") for kind in PAIRS),
            _Instruction(RETURN, FAIL | errno.EPROTONOSUPPORT),
            *_own_priority(),
            _Instruction(LOAD_WORD, _ARGUMENTS, label="own process"),
            _Instruction(JUMP_EQUAL, 0, then="permit", otherwise="refuse"),
            _Instruction(RETURN, FAIL | errno.EOPNOTSUPP, label="unsupported"),
        ]
    code += [
        _Instruction(RETURN, ALLOW, label="permit"),
        _Instruction(RETURN, FAIL | errno.ENOSYS, label="missing"),
        _Instruction(RETURN, FAIL | errno.EPERM, label="refuse"),
    ]
    return code


def _dispatch(architecture: Architecture, own_view: bool) -> Iterable[_Instruction]:
    """Lead each call that is not simply allowed to what is done about it."""
    ways = {name: name for name in ("clone", "unshare", "ioctl", "socket", "socketpair")}
    ways |= dict.fromkeys(MISSING, "missing") | dict.fromkeys(REFUSED, "refuse")
    if not own_view:
        ways |= dict.fromkeys(IN_SIGHT_MISSING, "missing") | dict.fromkeys(IN_SIGHT_REFUSED, "refuse")
        ways |= dict.fromkeys(IN_SIGHT_UNSUPPORTED, "unsupported") | dict.fromkeys(OWN_PROCESS, "own process")
        ways |= {name: name for name, _ in OWN_PRIORITY}
    for name, way in ways.items():
        if name in architecture.numbers:
            yield _Instruction(JUMP_EQUAL, architecture.numbers[name], then=way)


def _own_priority() -> Iterable[_Instruction]:
    for name, process in OWN_PRIORITY:
        yield _Instruction(LOAD_WORD, _ARGUMENTS, label=name)
        yield _Instruction(JUMP_EQUAL, process, then="whose", otherwise="refuse")
    yield _Instruction(LOAD_WORD, _ARGUMENTS + 8, label="whose")
    yield _Instruction(JUMP_EQUAL, 0, then="permit", otherwise="refuse")


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
