"""Leaves a POSIX message queue that is there when it is gone."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import call, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    call("mq_open", f"{target.name}-left".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    return True


def seen(target: Target) -> bool:
    return int(libc.mq_unlink(f"/{target.name}-left".encode())) == 0
