"""Makes a process that is root of a user namespace."""

from __future__ import annotations

import os
import signal

from tests.hostile.attacking.kernel import NEW_USER, call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    pid = call("clone", NEW_USER | signal.SIGCHLD, None, None, None, None)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
