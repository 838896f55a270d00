"""Makes namespaces for processes, mounts, networks and control groups."""

from __future__ import annotations

from tests.hostile.attacking.kernel import NEW_CGROUP, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    checked(libc.unshare(NEW_USER | NEW_PID | NEW_MOUNT | NEW_NET | NEW_CGROUP))
    return True
