"""How much of the machine a process may take, as resource limits of the kernel, and what nothing limits here.

A resource limit holds per process but for the number of processes, which the kernel counts per user: all tasks of the
user, of other programs too, unless the worker is a user of its own. What holds a whole tree is in `cgroups`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.limits import Limits
from runner.sandbox.cgroups import Controller, Groups
from runner.sandbox.policy import NO_CORE

RLimit = tuple[str, int, int]
"""Name without the `RLIMIT_` prefix, soft and hard limit, as `SandboxPolicy.rlimits` has them."""


def rlimits(limits: Limits, *, tasks: int) -> tuple[RLimit, ...]:
    """Compile limits to what the kernel takes.

    Args:
        limits: What a worker may use.
        tasks: Tasks that its user has already; 0 for a user of its own.
    """
    return (NO_CORE, *((name, value, value) for name, value in _values(limits, tasks)))


def _values(limits: Limits, tasks: int) -> Iterator[tuple[str, int]]:
    if limits.memory_bytes is not None:
        yield "DATA", limits.memory_bytes
    if limits.processes is not None:
        yield "NPROC", limits.processes + tasks
    if limits.open_files is not None:
        yield "NOFILE", limits.open_files
    if limits.file_bytes is not None:
        yield "FSIZE", limits.file_bytes


def not_limited(limits: Limits, groups: Groups, *, sandboxed: bool, root: bool, own_user: bool) -> tuple[str, ...]:
    """Say what the limits do not hold, for the report.

    Args:
        limits: What a worker may use.
        groups: The control groups that can be used.
        sandboxed: It can write into its own folders only.
        root: It is root.
        own_user: It is a user that nobody else is.
    """
    missing = dict(groups.missing)
    said = [*_memory(limits, missing), *_processes(limits, missing, root=root, own_user=own_user)]
    if limits.cpus is None:
        said.append("processor time: no limit was asked for")
    elif "cpu" in missing:
        said.append(f"processor time: {missing['cpu']}")
    if limits.disk_bytes is None:
        said.append("disk space: no limit was asked for")
    elif sandboxed:
        said.append("disk space: measured twice a second, so a fast worker can exceed the limit before it is ended")
    else:
        said.append("disk space: only the worker's own folders are measured, and it can write elsewhere")
    return tuple(said)


def _memory(limits: Limits, missing: Mapping[Controller, str]) -> Iterator[str]:
    if limits.memory_bytes is None:
        yield "memory: no limit was asked for"
    elif "memory" in missing:
        yield f"memory: limited for each process by itself, without shared memory, since {missing['memory']}"


def _processes(limits: Limits, missing: Mapping[Controller, str], *, root: bool, own_user: bool) -> Iterator[str]:
    if limits.processes is None:
        yield "processes: no limit was asked for"
    elif "pids" in missing and root:
        yield f"processes: the kernel does not hold root to a limit, and {missing['pids']}"
    elif "pids" in missing and not own_user:
        yield f"processes: counted together with the user's other ones, since {missing['pids']}"


def tasks_of(uid: int, proc: Path = Path("/proc")) -> int:
    """Count the processes and threads of a user, as far as they can be seen."""
    count = 0
    for name in os.listdir(proc):  # noqa: PTH208 - a machine has thousands
        if not name.isdigit():
            continue
        try:
            if os.stat(f"{proc}/{name}").st_uid == uid:  # noqa: PTH116 - as above
                count += len(os.listdir(f"{proc}/{name}/task"))  # noqa: PTH208 - as above
        except OSError:
            continue
    return count
