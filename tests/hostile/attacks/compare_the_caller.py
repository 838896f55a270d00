"""Asks whether the caller and itself share parts of the kernel's memory."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

KCMP_FILES = 2


def attack(target: Target) -> bool:
    call("kcmp", os.getpid(), target.caller, KCMP_FILES, 0, 0)
    return True
