"""How much of the machine a process may take, as resource limits of the kernel, and what these cannot limit.

A limit holds per process but for the number of processes, which the kernel counts per user: all tasks of the user, of
other programs too, unless the worker is a user of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RLimit = tuple[str, int, int]
"""Name without the `RLIMIT_` prefix, soft and hard limit, as `SandboxPolicy.rlimits` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a worker may take; `None` sets no limit.

    Args:
        memory_bytes: Private memory of each process.
        processes: Processes and threads of the whole tree.
        open_files: Descriptors of each process.
        file_bytes: Size of each file it writes.
    """

    memory_bytes: int | None = None
    processes: int | None = 1024
    open_files: int | None = 16_384
    file_bytes: int | None = 16 * 1024**3


def rlimits(resources: Resources, *, tasks: int) -> tuple[RLimit, ...]:
    """Compile limits to what the kernel takes.

    Args:
        resources: What the worker may take.
        tasks: Tasks that its user has already; 0 for a user of its own.
    """
    return tuple((name, value, value) for name, value in _values(resources, tasks))


def _values(resources: Resources, tasks: int) -> Iterator[tuple[str, int]]:
    # core dumps of untrusted code would land in its working directory with whatever was in memory
    yield "CORE", 0
    if resources.memory_bytes is not None:
        yield "DATA", resources.memory_bytes
    if resources.processes is not None:
        yield "NPROC", resources.processes + tasks
    if resources.open_files is not None:
        yield "NOFILE", resources.open_files
    if resources.file_bytes is not None:
        yield "FSIZE", resources.file_bytes


def not_limited(resources: Resources, *, root: bool, own_user: bool) -> tuple[str, ...]:
    """Say what the limits do not hold, for the report.

    Args:
        resources: What the worker may take.
        root: The worker is root.
        own_user: The worker is a user that nobody else is.
    """
    said = ["disk space: files are limited one by one, not their sum"]
    if resources.memory_bytes is None:
        said.append("memory: no limit was asked for")
    else:
        said.append("memory: limited for each process, not for all of them together; shared memory does not count")
    if resources.processes is None:
        said.append("processes: no limit was asked for")
    elif root:
        said.append("processes: the kernel does not hold root to a limit")
    elif not own_user:
        said.append("processes: counted together with the user's other ones, which may use the allowance up")
    return tuple(said)


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
