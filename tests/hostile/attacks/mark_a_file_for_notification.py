"""Has itself told of everything that is done in the caller's home, by the newer interface."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

REPORT_FILE_IDENTITY = 0x200


def attack(target: Target) -> bool:
    call("fanotify_init", REPORT_FILE_IDENTITY, 0)
    return True
