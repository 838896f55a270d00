"""Runs pip so that it starts no program but those that fetch repositories: nothing of a package is built or executed.

Run by path with the interpreter that pip is for: the folder with pip, then pip's own arguments. Standard library and
pip only. Python tells of every program before it is started, and here that is refused; pip then ends with `REFUSED` in
what it prints.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REFUSED = "nothing of a package is executed here"
FETCHERS = frozenset({"git", "hg", "svn", "bzr"})
STARTS = frozenset(
    {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"}
)
"""Names under which Python tells of the start of a program."""


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to start a program.

    Raises:
        PermissionError: it is none that fetches repositories. Who only asks a program for its version goes on.
    """
    if event not in STARTS:
        return
    program = arguments[0] if event == "subprocess.Popen" else ""
    if os.path.basename(os.fsdecode(program)) not in FETCHERS:  # noqa: PTH119 - no pathlib where every start counts
        raise PermissionError(1, REFUSED)


def main() -> int:
    """Run pip."""
    folder, *arguments = sys.argv[1:]
    sys.argv = ["pip", *arguments]
    sys.path.insert(0, folder)
    sys.addaudithook(refuse)
    from pip._internal.cli.main import main as run

    return int(run())


if __name__ == "__main__":
    raise SystemExit(main())
