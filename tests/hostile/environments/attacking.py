"""An environment that attacks as soon as it is made: while it is unpickled, and in its constructor."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


def attempt(action: Callable[[], object]) -> str:
    """Say whether something can be done, or by which error it ended."""
    try:
        return "can" if action() else "cannot"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def write(path: Path) -> bool:
    """Write a file where there was none."""
    return path.write_text("x") > 0


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Make something writable, as whoever it belongs to can, and leave it as it was: others use it."""
    mode = path.stat().st_mode
    with suppress(OSError):
        path.chmod(mode | 0o200)
    try:
        yield
    finally:
        with suppress(OSError):
            path.chmod(mode)


def plant(folder: Path) -> bool:
    """Write a file into a folder, and take it away again."""
    with writable(folder):
        write(folder / "planted")
        (folder / "planted").unlink()
    return True


def change(path: Path) -> bool:
    """Open a file for writing."""
    with writable(path), path.open("r+b"):
        return True


def send(pid: int) -> bool:
    """Send a signal that nobody minds."""
    os.kill(pid, signal.SIGWINCH)
    return True


class Exploit:
    """Runs a program when it is unpickled."""

    def __init__(self, *command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return subprocess.call, (self.command,)


class Attacking(Environment[None, RolloutAttempt]):
    """Takes what it can get, and says what that was where a rollout says its error.

    Args:
        caller: The process that it wants to hurt.
        secret: What stands in the caller's environment.
        home: The caller's home.
        unpickled: Whatever is left of an exploit.
    """

    def __init__(self, caller: int, secret: str, home: str, unpickled: object = None) -> None:
        venv = Path(sys.prefix)
        worker = Path(str(sys.modules["__main__"].__file__))
        self.found = {
            "read the caller's environment": attempt(Path(f"/proc/{caller}/environ").read_bytes),
            "find the caller's key in its own": attempt(lambda: secret in os.environ.values()),
            "read a key": attempt(Path(home, ".ssh", "id").read_text),
            "plant a file": attempt(lambda: write(Path(home, "planted"))),
            "plant a package": attempt(lambda: plant(venv)),
            "change the worker": attempt(lambda: change(worker)),
            "list the cache": attempt(lambda: list(venv.parent.iterdir())),
            "signal the caller": attempt(lambda: send(caller)),
            "leave shared memory": attempt(lambda: write(Path("/dev/shm", f"attack-{caller}"))),
            "use its own folder": attempt(lambda: write(Path.home() / "note")),
        }

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("say", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        said = json.dumps(self.found)
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=said
        )
