"""Runs a program that it has brought along."""

from __future__ import annotations

import os
import shutil

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    program = target.work / "true"
    shutil.copy("/bin/true", program)
    return os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(program, ["true"], {}), 0)[1]) == 0
