"""System calls by number, for what Python and the C library have no function for."""

from __future__ import annotations

import ctypes
import os
from typing import Any

NUMBERS = {
    "x86_64": {
        "shmget": 29, "shmat": 30, "clone": 56, "semget": 64, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "ptrace": 101,
        "syslog": 103, "personality": 135, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161,
        "acct": 163, "mount": 165, "swapon": 167, "reboot": 169, "sethostname": 170, "iopl": 172, "delete_module": 176,
        "mq_open": 240, "mq_timedreceive": 243, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
        "ioprio_set": 251, "inotify_init1": 294, "inotify_add_watch": 254, "perf_event_open": 298,
        "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "sched_setattr": 314, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": {
        "shmget": 194, "shmat": 196, "clone": 220, "semget": 190, "msgget": 186, "msgsnd": 189, "msgrcv": 188,
        "ptrace": 117, "syslog": 116, "personality": 92, "pivot_root": 41, "adjtimex": 171, "chroot": 51, "acct": 89,
        "mount": 40, "swapon": 224, "reboot": 142, "sethostname": 161, "delete_module": 106, "mq_open": 180,
        "mq_timedreceive": 183, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219,
        "ioprio_set": 30, "inotify_init1": 26, "inotify_add_watch": 27, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "process_vm_readv": 270, "process_vm_writev": 271,
        "kcmp": 272, "sched_setattr": 274, "bpf": 280, "userfaultfd": 282,
    },
}[os.uname().machine] | {
    "io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "clone3": 435, "pidfd_getfd": 438, "file_setattr": 469,
}  # fmt: skip

NEW_TIME, NEW_MOUNT, NEW_CGROUP = 0x80, 0x20000, 0x2000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
"""Flags `CLONE_NEW…`."""

libc = ctypes.CDLL(None, use_errno=True)


class NotHereError(Exception):
    """This machine does not have what the attack is about."""


def call(name: str, *arguments: Any) -> int:
    """Make a system call.

    Raises:
        NotHereError: this machine has no such call.
        OSError: it failed.
    """
    if name not in NUMBERS:
        raise NotHereError(name)
    return checked(libc.syscall(NUMBERS[name], *arguments))


def checked(result: int) -> int:
    """Return what a function of the C library returned.

    Raises:
        OSError: it failed.
    """
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return int(result)


def number(value: int) -> ctypes.c_long:
    """A number that fills a register: of a plain one, only the lower half is sure to be passed."""
    return ctypes.c_long(value)


def as_root_of_its_own(more: int = 0) -> None:
    """Become root of a user namespace, where that can be had; what needs root then says by itself that it cannot."""
    libc.unshare(NEW_USER | more)
