"""Why a sandbox cannot be had, from what the attempt said and what the machine is set to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.sandbox.blockers import Settings, explain, read_settings

OPEN = Settings(user_namespaces=96365, unprivileged_clone=None, apparmor_restricts=False, filtered=False)
NO_NAMESPACE = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README>."
)
NO_MAP = "bwrap: setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("text", "settings", "fact", "remedy"),
    [
        ("bwrap: Unknown option --unshare-cgroup", OPEN, "this bubblewrap is too old", "0.5 or newer"),
        (NO_NAMESPACE, replace(OPEN, user_namespaces=None), "this kernel has no user namespaces", "CONFIG_USER_NS"),
        (NO_NAMESPACE, replace(OPEN, user_namespaces=0), "user.max_user_namespaces is 0", "sysctl user.max_user"),
        (
            NO_NAMESPACE,
            replace(OPEN, unprivileged_clone=False),
            "kernel.unprivileged_userns_clone is 0",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
        (NO_MAP, replace(OPEN, apparmor_restricts=True), "AppArmor restricts user namespaces", "AppArmor profile"),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            replace(OPEN, apparmor_restricts=True),
            "AppArmor restricts user namespaces",
            "AppArmor profile",
        ),
        (
            NO_NAMESPACE,
            replace(OPEN, filtered=True),
            "a system call filter, probably of a container",
            "seccomp profile",
        ),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC): "
            "No space left on device",
            replace(OPEN, user_namespaces=50),
            "there are too many user namespaces already",
            "raise sysctl",
        ),
        (NO_NAMESPACE, OPEN, "this user may not make user namespaces", "whoever runs this machine"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", OPEN, "a fresh /proc", "systempaths"),
        (
            "launcher: cannot make a mount namespace: Operation not permitted",
            OPEN,
            "root has been denied what root needs",
            "Run as an ordinary user",
        ),
        ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", OPEN, "this kernel cannot filter", "CONFIG_SECCOMP_FILTER"),
        (
            "launcher: cannot make a network namespace (loopback): Operation not permitted",
            replace(OPEN, apparmor_restricts=True),
            "AppArmor restricts user namespaces",
            "a profile for bwrap alone is not enough",
        ),
        (
            "launcher: cannot make a network namespace: No space left on device",
            OPEN,
            "there are too many user namespaces already",
            "raise sysctl",
        ),
        (
            "launcher: cannot make a network namespace: Operation not permitted",
            replace(OPEN, filtered=True),
            "a system call filter, probably of a container",
            "CLONE_NEWUSER",
        ),
        ("bwrap: something new", OPEN, "a trial run failed (bwrap: something new)", "report this text"),
        ("", OPEN, "a trial run failed (it said nothing)", "report this text"),
    ],
)
def test_a_blocker_is_named_with_what_would_help(text: str, settings: Settings, fact: str, remedy: str) -> None:
    blocker = explain(text, settings)
    assert blocker.fact.startswith(fact)
    assert remedy in blocker.remedy


def test_what_was_said_is_quoted_on_one_line() -> None:
    blocker = explain("warning\nbwrap: odd \x1b[31mtext\n", OPEN)
    assert "bwrap: odd \\x1b[31mtext" in blocker.fact
    assert "warning" not in blocker.fact


def test_settings_are_read_where_the_kernel_has_them(tmp_path: Path) -> None:
    for folder in ("sys/user", "sys/kernel", "self"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "self/status").write_text("Name:\tx\nSeccomp:\t0\n")
    assert read_settings(tmp_path) == Settings(
        user_namespaces=None, unprivileged_clone=None, apparmor_restricts=False, filtered=False
    )
    (tmp_path / "sys/user/max_user_namespaces").write_text("0\n")
    (tmp_path / "sys/kernel/unprivileged_userns_clone").write_text("0\n")
    (tmp_path / "sys/kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    (tmp_path / "self/status").write_text("Name:\tx\nSeccomp:\t2\n")
    assert read_settings(tmp_path) == Settings(
        user_namespaces=0, unprivileged_clone=False, apparmor_restricts=True, filtered=True
    )
