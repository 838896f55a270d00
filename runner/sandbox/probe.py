"""Which sandbox levels work here, found out by running a trivial sandbox of each.

Comes in: the machine. Goes out: for each level whether it works, or what is in the way and what would help.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from runner.errors import SandboxUnavailableError
from runner.sandbox.blockers import Blocker, explain, read_settings
from runner.sandbox.closed import closed_folders
from runner.sandbox.machine import Machine, this_machine
from runner.sandbox.plan import Plan, compile_plan
from runner.sandbox.policy import Level, Network, SandboxPolicy
from runner.sandbox.unprivileged import unprivileged_user

LAUNCHER: Final = Path(__file__).parent / "launcher.py"

PROBE_S: Final = 20.0
"""A trial takes some ten milliseconds; a machine that takes this long has other troubles."""

LEAK: Final = 9
_TRIAL: Final = f'read line < "$0" && exit {LEAK}; exit 0'
"""Tries to read a file outside; a sandbox in which that works is none."""

MECHANISMS: Final[dict[Level, str]] = {
    "off": "supervisor, resource limits, no new privileges",
    "landlock": "Landlock file rules, system call filter",
    "namespaces": "bubblewrap: user, mount, pid, ipc, uts and cgroup namespaces, system call filter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether one level can be had.

    Args:
        level: The level.
        mechanism: What it is made of here.
        blocker: What is in the way; `None` where it works.
    """

    level: Level
    mechanism: str
    blocker: Blocker | None = None

    @property
    def available(self) -> bool:
        """Whether a trial run worked."""
        return self.blocker is None


def availability(level: Level, machine: Machine | None = None) -> Availability:
    """Find out whether a level works; a level is tried once per process and machine.

    Args:
        level: The level.
        machine: What there is; `None` looks at this machine.
    """
    return _availability(level, this_machine() if machine is None else machine)


def strongest(machine: Machine | None = None) -> Level:
    """Return the strongest level that works."""
    found = this_machine() if machine is None else machine
    return next(level for level in reversed(get_args(Level)) if availability(level, found).available)


def require_level(level: Level, machine: Machine | None = None) -> None:
    """Refuse a level that does not work here.

    Raises:
        SandboxUnavailableError: it does not; the text says what is in the way.
    """
    blocker = availability(level, machine).blocker
    if blocker is not None:
        raise SandboxUnavailableError(f"sandbox {level}: {blocker.fact}.", hint=f"{blocker.remedy}.")


def network_blocker(machine: Machine | None = None) -> Blocker | None:
    """Find out what is in the way of a network of its own, which a worker has at the level `namespaces` only.

    Returns:
        `None` where a trial run worked; there is one per process and machine.
    """
    found = this_machine() if machine is None else machine
    return availability("namespaces", found).blocker or _network_blocker(found)


@functools.lru_cache(maxsize=64)
def _network_blocker(machine: Machine) -> Blocker | None:
    return _blocker("namespaces", machine, "none")


@functools.lru_cache(maxsize=64)
def _availability(level: Level, machine: Machine) -> Availability:
    blocker = None if level == "off" else _blocker(level, machine)
    mechanism = MECHANISMS[level]
    if level == "landlock" and machine.landlock:
        mechanism += f" (Landlock version {machine.landlock})"
    return Availability(level=level, mechanism=mechanism, blocker=blocker)


def _blocker(level: Level, machine: Machine, network: Network = "open") -> Blocker | None:
    user = unprivileged_user(machine)
    if machine.uid == 0 and user is None:
        return Blocker(
            "root cannot become another user here", "Run as an ordinary user, or with CAP_SETUID and CAP_SETGID"
        )
    with tempfile.TemporaryDirectory(prefix="benchmax-probe-") as outer:
        # readable for everybody, so that only the sandbox can be what keeps it from being read
        Path(outer).chmod(0o755)
        secret, private = Path(outer) / "outside", Path(outer) / "private"
        secret.write_text("outside\n")
        private.mkdir()
        policy = SandboxPolicy(level=level, network=network, private=str(private), uid=user)
        closed = closed_folders([str(private)], user) if user is not None else {}
        try:
            plan = compile_plan(
                policy, machine, ["/bin/sh", "-c", _TRIAL, str(secret)], cwd=str(private), closed=closed
            )
        except SandboxUnavailableError as error:
            return Blocker(error.message.removeprefix(f"sandbox {level}: ").rstrip("."), error.hint.rstrip("."))
        try:
            done = launch(plan, cwd="/" if plan.relayed else str(private), env={}, timeout_s=PROBE_S)
        except subprocess.TimeoutExpired:
            return Blocker(f"a trial run did not end within {PROBE_S:g} s", "Look at what this machine is busy with")
    if done.returncode == 0:
        return None
    if done.returncode == LEAK:
        return Blocker("a trial run could read a file outside of the sandbox", "Report this, with the kernel's version")
    return explain(done.stderr.decode("utf-8", "replace"), read_settings())


def launch(
    plan: Plan, *, cwd: str, env: dict[str, str], timeout_s: float, descriptors: Sequence[int] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a plan to its end by the launcher as a program of its own, without a supervisor.

    Args:
        plan: What to do.
        cwd: Working directory of the launched program, outside.
        env: Its whole environment.
        timeout_s: Seconds until it is killed.
        descriptors: Handed over under their own numbers.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    order = {"steps": plan.steps, "argv": plan.argv, "env": env, "cwd": cwd, "umask": 0o077}
    source = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        os.write(source, json.dumps(order).encode())
        os.lseek(source, 0, os.SEEK_SET)
        return subprocess.run(
            [sys.executable, "-I", "-S", str(LAUNCHER), str(source)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            pass_fds=[source, *descriptors],
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    finally:
        os.close(source)
