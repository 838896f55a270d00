"""Keeps a PostgreSQL server for as long as somebody holds the other end of standard input, however that one ends.

Arguments: the folder to remove at the end, and the server's command. Run as a program of its own, outside of the
caller's process group.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 10.0


def main() -> None:
    folder, *command = sys.argv[1:]
    with Path(folder, "server.log").open("wb") as log:
        user, group = account()
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user, group=group, extra_groups=others()
        )
    try:
        while os.read(0, 4096):
            pass
    finally:
        # an immediate shutdown: there is nothing worth keeping
        server.send_signal(signal.SIGQUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE_S)
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def account() -> tuple[int | None, int | None]:
    """User and group that the server runs as, which must not be root; `None` for those of the caller."""
    if os.geteuid() != 0:
        return None, None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise SystemExit("there is no user to run the server as")


def others() -> list[int] | None:
    """Further groups that the server has: none, where they can be given up."""
    return [] if os.geteuid() == 0 else None


if __name__ == "__main__":
    main()
