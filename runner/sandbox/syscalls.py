"""Numbers of system calls on the machines the runner knows.

Taken from the kernel's own headers: `asm/unistd_64.h` for x86-64 and `asm-generic/unistd.h` for arm64. They are part of
the kernel's stable interface and never change; a test compares them with the headers where those are installed. A call
that a machine does not have is left out of its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one kind of machine numbers its system calls.

    Args:
        name: As `os.uname().machine` has it.
        audit: The number by which a seccomp filter knows it (`AUDIT_ARCH_…` of `linux/audit.h`).
        foreign_from: Calls numbered from here on belong to another ABI of the same machine; `None` where there is none.
        numbers: Name of a call → its number.
    """

    name: str
    audit: int
    foreign_from: int | None
    numbers: Mapping[str, int]


# name: x86-64, arm64; None where the machine has no such call
_TABLE: Final[dict[str, tuple[int | None, int | None]]] = {
    "ioctl": (16, 29),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "vhangup": (153, 58),
    "modify_ldt": (154, None),
    "pivot_root": (155, 41),
    "adjtimex": (159, 171),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "nfsservctl": (180, 42),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "semtimedop": (220, 192),
    "clock_settime": (227, 112),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "inotify_init": (253, None),
    "unshare": (272, 97),
    "inotify_init1": (294, 26),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "prlimit64": (302, 261),
    "open_by_handle_at": (304, 265),
    "clock_adjtime": (305, 266),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "sched_setattr": (314, 274),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "setxattrat": (463, 463),
    "getxattrat": (464, 464),
    "listxattrat": (465, 465),
    "removexattrat": (466, 466),
    "open_tree_attr": (467, 467),
    "file_setattr": (469, 469),
}


def _numbers(column: int) -> Mapping[str, int]:
    found = {name: numbers[column] for name, numbers in _TABLE.items()}
    return MappingProxyType({name: number for name, number in found.items() if number is not None})


ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {
        # from 2^30 on: the x32 ABI, which shares the audit number of x86-64
        "x86_64": Architecture(name="x86_64", audit=0xC000003E, foreign_from=0x40000000, numbers=_numbers(0)),
        "aarch64": Architecture(name="aarch64", audit=0xC00000B7, foreign_from=None, numbers=_numbers(1)),
    }
)
