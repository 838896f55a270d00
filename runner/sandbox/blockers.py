"""Why a sandbox cannot be had here, and what would help: from what the attempt said and what the machine is set to.

Pure: the attempt's text and the settings come in, one sentence each goes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.text import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What decides whether an ordinary user may make namespaces.

    Args:
        user_namespaces: Most there may be of them; `None` where the kernel has none.
        unprivileged_clone: Debian's switch for them; `None` where the kernel does not have it.
        apparmor_restricts: Whether AppArmor keeps programs without a profile from using them, as on Ubuntu from 23.10.
        filtered: Whether this process is under a system call filter already, as in most containers.
    """

    user_namespaces: int | None
    unprivileged_clone: bool | None
    apparmor_restricts: bool
    filtered: bool


@dataclass(frozen=True, slots=True)
class Blocker:
    """What is in the way, and what to do about it; both without an end mark."""

    fact: str
    remedy: str


def read_settings(proc: Path = Path("/proc")) -> Settings:
    """Read them from `/proc`; what is not there is not set."""
    most = _number(proc / "sys/user/max_user_namespaces")
    clone = _number(proc / "sys/kernel/unprivileged_userns_clone")
    restricted = _number(proc / "sys/kernel/apparmor_restrict_unprivileged_userns")
    status = (proc / "self/status").read_text()
    return Settings(
        user_namespaces=most,
        unprivileged_clone=None if clone is None else clone != 0,
        apparmor_restricts=restricted is not None and restricted != 0,
        filtered="Seccomp:\t2" in status,
    )


def explain(text: str, settings: Settings) -> Blocker:
    """Explain why bubblewrap, or the launcher before it, did not succeed.

    Args:
        text: What it wrote to standard error; its last line counts.
        settings: What the machine is set to.
    """
    said = one_line(text.strip().splitlines()[-1] if text.strip() else "it said nothing", 300)
    for applies, blocker in _CAUSES:
        if applies(said, settings):
            return Blocker(f"{blocker.fact} ({said})", blocker.remedy)
    return Blocker(f"a trial run failed ({said})", "Use another level, or report this text")


def _namespace_refused(said: str) -> bool:
    signs = ("new namespace", "network namespace", "uid map", "gid map", "setgroups", "loopback", "NETLINK_ROUTE")
    return any(sign in said for sign in signs)


_CAUSES: Final[tuple[tuple[Callable[[str, Settings], bool], Blocker], ...]] = (
    (
        lambda said, _: "Unknown option" in said,
        Blocker("this bubblewrap is too old", "Install bubblewrap 0.5 or newer"),
    ),
    (
        lambda said, settings: _namespace_refused(said) and settings.user_namespaces is None,
        Blocker("this kernel has no user namespaces", "Use a kernel built with CONFIG_USER_NS"),
    ),
    (
        lambda said, settings: _namespace_refused(said) and settings.user_namespaces == 0,
        Blocker("user.max_user_namespaces is 0", "As root: sysctl user.max_user_namespaces=10000"),
    ),
    (
        lambda said, settings: _namespace_refused(said) and settings.unprivileged_clone is False,
        Blocker("kernel.unprivileged_userns_clone is 0", "As root: sysctl kernel.unprivileged_userns_clone=1"),
    ),
    (
        lambda said, settings: "network namespace" in said and settings.apparmor_restricts,
        Blocker(
            "AppArmor restricts user namespaces",
            "As root: sysctl kernel.apparmor_restrict_unprivileged_userns=0 (a profile for bwrap alone is not enough "
            "for a network of its own)",
        ),
    ),
    (
        lambda said, settings: _namespace_refused(said) and settings.apparmor_restricts,
        Blocker(
            "AppArmor restricts user namespaces",
            "Install an AppArmor profile for bwrap that allows userns, or as root: "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ),
    (
        lambda said, settings: _namespace_refused(said) and settings.filtered,
        Blocker(
            "a system call filter, probably of a container, forbids namespaces",
            "Start the container with a seccomp profile that allows clone and unshare with CLONE_NEWUSER",
        ),
    ),
    (
        lambda said, _: "No space left" in said and "namespace" in said,
        Blocker("there are too many user namespaces already", "As root: raise sysctl user.max_user_namespaces"),
    ),
    (
        lambda said, _: _namespace_refused(said),
        Blocker("this user may not make user namespaces", "Ask whoever runs this machine to allow them"),
    ),
    (
        lambda said, _: "mount proc" in said,
        Blocker(
            "a fresh /proc may not be mounted, since a container covers parts of its own",
            "Start the container with an unmasked /proc (docker: --security-opt systempaths=unconfined)",
        ),
    ),
    (
        lambda said, _: "make a mount namespace" in said or "become user" in said,
        Blocker(
            "root has been denied what root needs to give up its privileges",
            "Run as an ordinary user, or give the container CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID",
        ),
    ),
    (
        lambda said, _: "system call filter" in said or "prctl(PR_SET_SECCOMP)" in said,
        Blocker("this kernel cannot filter system calls", "Use a kernel built with CONFIG_SECCOMP_FILTER"),
    ),
)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
