"""Takes a copy of a mount to put it elsewhere."""

from __future__ import annotations

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, call
from tests.hostile.attacking.target import Target

CURRENT_FOLDER, CLONE, RECURSIVE = -100, 1, 0x8000


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    call("open_tree", CURRENT_FOLDER, b"/", CLONE | RECURSIVE)
    return True
