"""What a process may do, as a frozen value. What it compiles to is in `plan`, how it is chosen in `levels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from runner.errors import UsageError
from runner.sandbox.cgroups import ControlGroup
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.overlay import Overlay
from runner.sandbox.private_root import PrivateRoot

Level = Literal["off", "landlock", "namespaces"]
Network = Literal["open", "model-only", "none"]
Credentials = Literal["headers", "gateway"]

NO_CORE: Final = ("CORE", 1, 1)
"""Of untrusted code nothing is dumped, neither into a file nor, where the system wants it so, into a program. A limit
of 0 would leave the latter; 1 is the kernel's sign for neither (`core(5)`)."""

NETWORKS: tuple[Network, ...] = get_args(Network)
CREDENTIALS: tuple[Credentials, ...] = get_args(Credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """How a supervised process is confined.

    Args:
        level: `off` confines only what a supervisor can without the kernel's help: its own session and process
            tree, an environment built from empty, closed descriptors, resource limits, no new privileges. It does
            not hide the caller's files, memory or environment from a process of the same user.
        network: `open` shares the host's network, loopback included. `model-only` and `none` have one of their own,
            at level `namespaces`, in which there are the endpoints and nothing else.
        endpoints: What can be connected to in a network of its own. Connections arrive at sockets that the caller gets.
        rlimits: Soft and hard limit by the name the `resource` module gives it, without the `RLIMIT_` prefix.
        groups: Control groups that hold the whole tree.
        disk_bytes: What `private`, `data` and what is written to `overlay` hold on disk at most, counted as
            `Limits.disk_bytes` is; its supervisor measures, and ends a tree that has more. `None` measures nothing.
        no_new_privileges: Set-uid programs give nothing to the process or its children.
        readable: Files and folders it may read and execute beside the system's, absolute:
            interpreter, venv, the worker's code, certificates.
        private: Its own folder, with `home` in it, which it may write.
        data: A folder of the caller's in which it finds copies of data, which it may write, too. They are put there
            whole: what follows names in a folder that untrusted code can change may be led anywhere.
        overlay: A folder of the caller's that it has as an overlay, at a place in `data`.
        root: A root of its own, at level `namespaces`, of which it is the root user; in the place of `private`, `data`
            and `overlay`.
        shared: Further folders of the caller's that it may write, absolute; for programs that are trusted with them.
        uid: User and group that it becomes, for a caller that is root; `None` keeps the caller's. With `root`, the
            first of its users.
        umask: What files it makes do not grant to others.
    """

    level: Level = "off"
    network: Network = "open"
    endpoints: tuple[Endpoint, ...] = ()
    rlimits: tuple[tuple[str, int, int], ...] = field(default=(NO_CORE,))
    groups: tuple[ControlGroup, ...] = ()
    disk_bytes: int | None = None
    no_new_privileges: bool = True
    readable: tuple[str, ...] = ()
    private: str | None = None
    data: str | None = None
    overlay: Overlay | None = None
    root: PrivateRoot | None = None
    shared: tuple[str, ...] = ()
    uid: int | None = None
    umask: int = 0o077

    @property
    def writable(self) -> tuple[str, ...]:
        """All folders it may write."""
        root = None if self.root is None else self.root.folder
        return tuple(dict.fromkeys(path for path in (self.private, self.data, root, *self.shared) if path is not None))

    @property
    def watched(self) -> tuple[str, ...]:
        """The folders whose use of the disk is measured, which nobody else writes."""
        if self.disk_bytes is None:
            return ()
        # not what the kernel keeps beside it
        written = None if self.overlay is None else f"{self.overlay.written}/upper"
        root = () if self.root is None else (self.root.root, self.root.layer)
        return tuple(path for path in (self.private, self.data, written, *root) if path is not None)

    def mechanisms(self) -> tuple[str, ...]:
        """Name each mechanism in force, for reports."""
        names = ["supervisor", "own session", "environment from empty", "closed descriptors"]
        names += [f"rlimit {name.lower()}" for name, _, _ in self.rlimits]
        files = [file for group in self.groups for file, _, _ in group.settings]
        names += dict.fromkeys(f"control group {file.partition('.')[0]}" for file in files)
        if self.disk_bytes is not None:
            names.append("disk watch")
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
