"""What a process may do, as a frozen value. What it compiles to is in `plan`, how it is chosen in `levels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from runner.errors import UsageError

Level = Literal["off", "landlock", "namespaces"]
Network = Literal["open", "model-only", "none"]
Credentials = Literal["headers", "gateway"]

BUILT_NETWORKS: tuple[Network, ...] = ("open",)
BUILT_CREDENTIALS: tuple[Credentials, ...] = ("headers",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """How a supervised process is confined.

    Args:
        level: `off` confines only what a supervisor can without the kernel's help: its own session and process
            tree, an environment built from empty, closed descriptors, resource limits, no new privileges. It does
            not hide the caller's files, memory or environment from a process of the same user.
        network: `open` shares the host's network, loopback included.
        rlimits: Soft and hard limit by the name the `resource` module gives it, without the `RLIMIT_` prefix.
        no_new_privileges: Set-uid programs give nothing to the process or its children.
        readable: Files and folders it may read and execute beside the system's, absolute:
            interpreter, venv, the worker's code, certificates.
        private: Its own folder, with `home` in it, which it may write.
        data: A folder of the caller's in which it finds copies of data, which it may write, too. They are put there
            whole: what follows names in a folder that untrusted code can change may be led anywhere.
        uid: User and group that it becomes, for a caller that is root; `None` keeps the caller's.
        umask: What files it makes do not grant to others.
    """

    level: Level = "off"
    network: Network = "open"
    # core dumps of untrusted code would land in its working directory with whatever was in memory
    rlimits: tuple[tuple[str, int, int], ...] = field(default=(("CORE", 0, 0),))
    no_new_privileges: bool = True
    readable: tuple[str, ...] = ()
    private: str | None = None
    data: str | None = None
    uid: int | None = None
    umask: int = 0o077

    @property
    def writable(self) -> tuple[str, ...]:
        """All folders it may write."""
        return tuple(path for path in (self.private, self.data) if path is not None)

    def mechanisms(self) -> tuple[str, ...]:
        """Name each mechanism in force, for reports."""
        names = ["supervisor", "own session", "environment from empty", "closed descriptors"]
        names += [f"rlimit {name.lower()}" for name, _, _ in self.rlimits]
        if self.no_new_privileges:
            names.append("no new privileges")
        return tuple(names)


def choose(option: str, value: str, *, known: Sequence[str], built: Sequence[str]) -> str:
    """Check one option's value against what exists.

    Raises:
        UsageError: the value is unknown or not built; the text lists what there is.
    """
    if value in built:
        return value
    there_is = ", ".join(built)
    if value in known:
        raise UsageError(f"{option} {value!r} is not built yet.", hint=f"This release has: {there_is}.")
    raise UsageError(f"{option} {value!r} is not known.", hint=f"Use one of: {there_is}.")
