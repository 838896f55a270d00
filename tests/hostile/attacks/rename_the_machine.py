"""Gives the machine another name."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import checked, libc, number
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    # the one it has, should this work
    name = os.uname().nodename.encode()
    checked(libc.sethostname(name, number(len(name))))
    return True
