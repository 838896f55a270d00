"""Runs a program that whoever starts it is root in."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.hostile.attacking.kernel import NotHereError
from tests.hostile.attacking.target import Target

NAMES = ("su", "mount", "passwd", "newgrp", "chsh", "sudo")


def attack(target: Target) -> bool:
    paths = (Path("/usr/bin", name) for name in NAMES)
    found = [path for path in paths if path.is_file() and path.stat().st_mode & stat.S_ISUID]
    if not found:
        raise NotHereError
    null = os.open("/dev/null", os.O_RDWR)
    quiet = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
    pid = os.posix_spawn(found[0], [str(found[0]), "--version"], {}, file_actions=quiet)
    # once it has ended, and before it is forgotten: it takes on its user only after the start has returned
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    status = Path(f"/proc/{pid}/status").read_text()
    os.waitpid(pid, 0)
    effective = next(line.split()[2] for line in status.splitlines() if line.startswith("Uid:"))
    return effective == "0"
