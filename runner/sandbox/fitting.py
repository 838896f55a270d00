"""A level's policy fitted to one worker: its own folder, its own user, and what it reads beside the system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.sandbox.closed import closed_folders
from runner.sandbox.machine import Machine
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.resources import tasks_of
from runner.sandbox.unprivileged import unprivileged_user


def fit(
    policy: SandboxPolicy, machine: Machine, *, private: Path, data: Path | None = None, readable: Sequence[str]
) -> SandboxPolicy:
    """Fit a policy to a worker.

    At `off` the worker keeps the caller's user and sees all of its files. The limit on the number of processes is
    raised by what its user runs already, since the kernel counts them together.

    Args:
        policy: As it was chosen.
        machine: This machine.
        private: The worker's own folder.
        data: The folder in which copies of data are put for it.
        readable: What it reads beside the system; what does not exist is left out.

    Raises:
        OSError: a path cannot be resolved.
    """
    uid = None if policy.level == "off" else unprivileged_user(machine)
    tasks = tasks_of(machine.uid) if uid is None else 0
    there = [Path(path).absolute() for path in readable if Path(path).exists()]
    # under the name by which it is asked for, and under the one to which links lead
    paths = (name for path in there for name in (path, path.resolve()))
    return replace(
        policy,
        private=str(private.resolve()),
        data=None if data is None else str(data.resolve()),
        readable=tuple(dict.fromkeys(map(str, paths))),
        uid=uid,
        rlimits=tuple(
            (name, soft + tasks, hard + tasks) if name == "NPROC" else (name, soft, hard)
            for name, soft, hard in policy.rlimits
        ),
    )


def closed_to(policy: SandboxPolicy) -> dict[str, tuple[str, ...]]:
    """Map the folders that a policy's user cannot enter to what it needs below them.

    Raises:
        OSError: a path does not exist.
    """
    if policy.uid is None:
        return {}
    return closed_folders([*policy.readable, *policy.writable], policy.uid)
