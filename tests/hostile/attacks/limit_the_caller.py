"""Takes resources away from the caller."""

from __future__ import annotations

import resource

from tests.hostile.attacking.target import Target

FEW = 12345


def attack(target: Target) -> bool:
    resource.prlimit(target.caller, resource.RLIMIT_SIGPENDING, (FEW, FEW))
    return True


def seen(target: Target) -> bool:
    return resource.getrlimit(resource.RLIMIT_SIGPENDING) == (FEW, FEW)
