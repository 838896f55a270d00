"""A program that is kept running, as a service manager does it: started again however it ends, until it is to end.

Run as a program of its own it is the keeper of one: its argument is what `Unit` gives it, and it ends with its standard
input, so that nothing outlives who tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.02
"""Between two looks whether it still runs."""

PAUSE_S: Final = 0.1
"""Before it is started again."""


class Unit:
    """A program, kept running.

    Args:
        name: What it is called; its log is `<name>.log`.
        command: It.
        folder: Where its log is.
        environ: Its whole environment.
        network: The network namespace that it runs in; `None` for the one of who tests.
        user, group: Whose it is; `None` for those of who tests.
        end: The signal that ends it in order.
        end_s: How long it may then take.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environ: Mapping[str, str],
        network: str | None = None,
        user: int | None = None,
        group: int | None = None,
        end: signal.Signals = signal.SIGTERM,
        end_s: float = 30.0,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.log.touch()
        self._state = folder / f"{name}.pid"
        given = {
            "command": [str(part) for part in command],
            "log": str(self.log),
            "state": str(self._state),
            "user": user,
            "group": group,
            "end": int(end),
            "end_s": end_s,
        }
        inside = [] if network is None else ["ip", "netns", "exec", network]
        self._keeper = subprocess.Popen(
            [*inside, sys.executable, __file__, json.dumps(given)],
            stdin=subprocess.PIPE,
            env=dict(environ),
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id of the program as it runs now, or ran last."""
        return self._facts()[0]

    @property
    def starts(self) -> int:
        """How often it was started."""
        return self._facts()[1]

    def said(self, text: str) -> None:
        """Wait until something is in its log."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.log.read_text(errors="replace"):
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it; it is started again."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Have it end in order, for good; return its exit code, negative for a signal's number."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        return self._keeper.wait(PATIENCE_S) - 128

    def _facts(self) -> tuple[int, int]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(FileNotFoundError):
                pid, starts = self._state.read_text().split()
                return int(pid), int(starts)
            assert self._keeper.poll() is None and time.monotonic() < deadline, f"{self.name} does not start"
            time.sleep(0.01)


def main() -> None:
    given = json.loads(sys.argv[1])
    starts = 0
    while True:
        process = started(given)
        starts += 1
        fresh = Path(f"{given['state']}.new")
        fresh.write_text(f"{process.pid} {starts}")
        fresh.replace(given["state"])
        while process.poll() is None:
            if is_to_end(LOOK_S):
                sys.exit(ended(process, given) + 128)
        if is_to_end(PAUSE_S):
            sys.exit(process.returncode + 128)


def started(given: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    with Path(given["log"]).open("ab") as log:
        return subprocess.Popen(
            given["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=given["user"],
            group=given["group"],
            extra_groups=[] if given["user"] is not None else None,
            start_new_session=True,
        )


def is_to_end(wait_s: float) -> bool:
    """Wait for the end of standard input."""
    return bool(select.select([0], [], [], wait_s)[0])


def ended(process: subprocess.Popen[bytes], given: Mapping[str, Any]) -> int:
    process.send_signal(given["end"])
    try:
        return process.wait(given["end_s"])
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


if __name__ == "__main__":
    main()
