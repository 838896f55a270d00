"""Takes the protection away from its own venv by mounting it anew."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, checked, libc
from tests.hostile.attacking.target import Target

BIND = 4096


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    venv = bytes(target.venv)
    checked(libc.mount(venv, venv, None, ctypes.c_ulong(BIND), None))
    (target.venv / "remounted").touch()
    return True
