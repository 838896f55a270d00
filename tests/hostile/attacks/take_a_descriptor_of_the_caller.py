"""Copies a descriptor of the caller into its own process."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    taken = call("pidfd_getfd", os.pidfd_open(target.caller), target.descriptor, 0)
    return holds_secret(os.pread(taken, 100, 0))
