"""A worker whose interpreter has found another one's standard library ends before it loads anything, and says which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import runner

BOOT = Path(runner.__file__).parent / "worker" / "boot.py"


def boot(prefix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-s", "-P", "-X", "utf8", str(BOOT), prefix], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("prefix", ["/usr/that-is-not-there", "/", str(Path(sys.base_prefix).parent)])
def test_an_interpreter_with_another_standard_library_is_told_and_not_used(prefix: str) -> None:
    done = boot(prefix)
    assert done.returncode == 78
    assert done.stderr == (
        f"the interpreter is not whole: its prefix is {os.path.realpath(sys.base_prefix)} and its standard library "
        f"{os.path.realpath(os.__file__)}, but the venv was made of {prefix}\n"
    )


def test_one_that_is_whole_goes_on_and_misses_its_channels() -> None:
    done = boot(sys.base_prefix)
    assert done.returncode == 1
    assert "Bad file descriptor" in done.stderr
    assert "not whole" not in done.stderr
