"""Which files a process may use, as a Landlock ruleset: rights by the kernel's version of the interface.

Comes in: folders to read, folders to write, and the version the kernel offers. Goes out: a `Ruleset`, numbers only,
which the launcher hands to the kernel. Refuses: a version that cannot give what the level promises.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.errors import SandboxUnavailableError

NEEDED_VERSION: Final = 3
"""Linux 6.2. Before, a process could empty any file of its user, writable for it or not."""

SCOPE_VERSION: Final = 6
"""Linux 6.12: signals and abstract sockets reach no process outside."""


class Right(enum.IntFlag):
    """What may be done with a file or below a folder; names and values of `linux/landlock.h`."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


class Scope(enum.IntFlag):
    """What does not leave the sandbox."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


SINCE: Final[tuple[tuple[int, Right], ...]] = (
    (1, Right((1 << 13) - 1)),
    (2, Right.REFER),
    (3, Right.TRUNCATE),
    (5, Right.IOCTL_DEV),
)
"""Version of the interface → the rights that it added."""

READ: Final = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
WRITE: Final = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.MAKE_SOCK
    | Right.MAKE_FIFO
    | Right.MAKE_SYM
    | Right.REFER
)
DEVICE: Final = Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE
FILE_RIGHTS: Final = Right.EXECUTE | Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
"""The rights that make sense for what is no folder; the kernel refuses a rule with others."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is allowed at and below one path. One that is not `needed` may be missing on this machine."""

    path: str
    rights: Right
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """What the kernel is told: everything `handled` is refused but for the rules, nothing `scoped` leaves."""

    handled: Right
    scoped: Scope
    rules: tuple[Rule, ...]

    def names(self) -> tuple[str, ...]:
        """Name what is in force, for reports."""
        rights = (f"landlock {right.name}" for right in Right if right in self.handled)
        scopes = (f"landlock scope {scope.name}" for scope in Scope if scope in self.scoped)
        return tuple(name.lower().replace("_", " ") for name in (*rights, *scopes))


def handled(version: int) -> Right:
    """All file rights that a version of the interface knows."""
    rights = Right(0)
    for since, added in SINCE:
        if since <= version:
            rights |= added
    return rights


def scoped(version: int) -> Scope:
    """Everything that a version of the interface can keep inside."""
    return Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL if version >= SCOPE_VERSION else Scope(0)


def ruleset(version: int, rules: Sequence[Rule]) -> Ruleset:
    """Compile rules for a kernel.

    Raises:
        SandboxUnavailableError: it has no Landlock, or a version that cannot keep the promises of the level.
    """
    check(version)
    known = handled(version)
    return Ruleset(
        handled=known,
        scoped=scoped(version),
        rules=tuple(Rule(rule.path, rule.rights & known, rule.needed) for rule in rules),
    )


def check(version: int) -> None:
    """Refuse a version of the interface that is too old.

    Raises:
        SandboxUnavailableError: it cannot keep the promises of the level.
    """
    if version >= NEEDED_VERSION:
        return
    what = (
        f"offers version {version} of Landlock, which cannot protect files from being emptied"
        if version
        else ("offers no Landlock")
    )
    raise SandboxUnavailableError(
        f"sandbox landlock: this kernel {what}; version {NEEDED_VERSION} (Linux 6.2) is needed.",
        hint="Use a newer kernel with landlock in its list of security modules (lsm=landlock,…), or --sandbox off.",
    )
