"""Has itself told of everything that is opened in the caller's home, with its name."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call, checked, libc
from tests.hostile.attacking.target import Target

OPEN = 0x20


def attack(target: Target) -> bool:
    call("inotify_add_watch", checked(libc.inotify_init1(0)), bytes(target.home), OPEN)
    return True
