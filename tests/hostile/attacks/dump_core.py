"""Leaves a picture of its memory behind by crashing."""

from __future__ import annotations

import os
import resource
import signal

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        os.kill(os.getpid(), signal.SIGQUIT)
    return os.WCOREDUMP(os.waitpid(pid, 0)[1])
