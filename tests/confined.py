"""What tests of sandboxes share: programs started at a level, by a caller that is root or an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from runner.sandbox.closed import closed_folders
from runner.sandbox.machine import Machine, look
from runner.sandbox.overlay import Overlay
from runner.sandbox.plan import Step, compile_plan
from runner.sandbox.policy import Level, Network, SandboxPolicy
from runner.sandbox.probe import launch
from runner.sandbox.resources import RLimit
from runner.sandbox.unprivileged import FIRST, unprivileged_user
from runner.sandbox.view import interpreter

Caller = Literal["root", "ordinary"]
ORDINARY = FIRST - 1
"""The ordinary user that tests become when they run as root; nobody else is it."""

BASE = os.path.realpath(sys.executable)
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Box:
    """A folder of its own for a sandboxed program, and what is confined how.

    Args:
        level: The level.
        caller: Who starts it; tests that run as root can be both.
        folder: Private folder, with `home`, `tmp` and `work`.
        user: Who the caller is.
    """

    level: Level
    caller: Caller
    folder: Path
    user: int

    @property
    def machine(self) -> Machine:
        """This machine as the caller sees it."""
        found = look()
        return found if self.user == found.uid else replace(found, uid=self.user, capabilities=frozenset())

    def run(
        self,
        argv: Sequence[str],
        *,
        readable: Sequence[str] = (),
        network: Network = "open",
        rlimits: tuple[RLimit, ...] = (),
        no_new_privileges: bool = True,
        descriptors: Sequence[int] = (),
        overlay: Overlay | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end."""
        machine = self.machine
        policy = SandboxPolicy(
            level=self.level,
            network=network,
            rlimits=rlimits,
            no_new_privileges=no_new_privileges,
            readable=(*interpreter(BASE), *readable),
            private=str(self.folder),
            data=None if overlay is None else str(Path(overlay.target).parents[1]),
            overlay=overlay,
            uid=None if self.level == "off" else unprivileged_user(machine),
        )
        needed = [*policy.readable, str(self.folder)]
        closed = closed_folders(needed, policy.uid) if policy.uid is not None else {}
        plan = compile_plan(policy, machine, argv, cwd=f"{self.folder}/work", closed=closed)
        # the test itself may run as root, and then first becomes the caller
        steps = caller_steps(self.user, needed, writable=(str(self.folder),))
        return launch(
            replace(plan, steps=(*steps, *plan.steps)),
            cwd="/" if plan.relayed else f"{self.folder}/work",
            env={"PATH": "/usr/bin:/bin", "HOME": f"{self.folder}/home", "TMPDIR": f"{self.folder}/tmp"},
            timeout_s=PATIENCE_S,
            descriptors=descriptors,
        )

    def python(self, code: str, *arguments: str, **options: object) -> str:
        """Run a program of the base interpreter, which must succeed; return what it printed."""
        done = self.run([BASE, "-I", "-c", code, *arguments], **options)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()


def caller_steps(user: int, needed: Sequence[str], *, writable: Sequence[str] = ()) -> list[Step]:
    """What a process that is root does to become another caller, who finds what it needs below closed folders, too."""
    if user == os.geteuid():
        return []
    steps: list[Step] = [{"do": "mounts"}]
    for folder, paths in closed_folders(needed, user).items():
        shown = [[path, path in writable] for path in paths if Path(path).is_dir()]
        steps.append({"do": "show", "folder": folder, "paths": shown})
    return [*steps, {"do": "become", "uid": user}]


def user_of(caller: Caller) -> int:
    """The number of the user that a caller is."""
    return os.geteuid() if caller == "root" or os.geteuid() != 0 else ORDINARY


@contextmanager
def box(level: Level, caller: Caller) -> Iterator[Box]:
    """Make a private folder for a program at a level."""
    user = user_of(caller)
    # not below pytest's own folder, which only its user may enter
    with tempfile.TemporaryDirectory(prefix="benchmax-box-") as outer:
        Path(outer).chmod(0o755)
        folder = Path(outer) / "private"
        for path in (folder, *(folder / name for name in ("home", "tmp", "work"))):
            path.mkdir()
            os.chown(path, user, user)
        yield Box(level, caller, folder, user)
