"""Makes a process by the call whose flags no filter can see."""

from __future__ import annotations

import os
import signal
import struct

from tests.hostile.attacking.kernel import NEW_USER, call, number
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    arguments = struct.pack("=8Q", NEW_USER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = call("clone3", arguments, number(len(arguments)))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
