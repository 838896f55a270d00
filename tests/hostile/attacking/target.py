"""What is attacked: where everything of the caller is, as far as anybody could guess it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

SECRET = "hunter2-of-the-caller"
"""Stands in everything that is the caller's alone; whoever comes back with it has read it."""

OWN = "harmless"
"""Stands in what the program itself is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Places and numbers of the victims; all of them exist while the attacks run.

    Args:
        caller: Process that has started the program, with the secret in its environment, memory and command line.
        supervisor: Process that watches over the program; without a runner, one that stands in for it.
        secret_address: Where in the caller's memory the secret is.
        scratch_address: Where in it sixteen bytes are that only attacks change.
        descriptor: Number of a descriptor of the caller's that leads to the secret.
        outer: Folder with all that follows; its name is known to nobody else.
        private: The program's own folder.
        name: A name that no other run uses, for what has none of its own.
        terminal: Number of a terminal's descriptor that the program was handed.
        port: TCP port on loopback that somebody listens on.
        priority: What the caller's priority is before anybody changes it.
        key: Key of the caller's shared memory segment and message queue.
    """

    caller: int
    supervisor: int
    secret_address: int
    scratch_address: int
    descriptor: int
    outer: str
    private: str
    name: str
    terminal: int
    port: int
    priority: int
    key: int

    @property
    def home(self) -> Path:
        """The caller's home."""
        return Path(self.outer, "home")

    @property
    def data(self) -> Path:
        """The caller's data."""
        return Path(self.outer, "data")

    @property
    def cache(self) -> Path:
        """The cache, with another bundle's venv in it."""
        return Path(self.outer, "cache")

    @property
    def venv(self) -> Path:
        """The program's own venv, which it may read."""
        return Path(self.outer, "venv")

    @property
    def code(self) -> Path:
        """The folder of the code that the program runs, which it may read."""
        return Path(self.outer, "code")

    @property
    def neighbour(self) -> Path:
        """The folder of another worker of the same caller."""
        return Path(self.outer, "neighbour")

    @property
    def work(self) -> Path:
        """The program's working directory."""
        return Path(self.private, "work")

    @property
    def shared_memory(self) -> Path:
        """Shared memory of the caller's."""
        return Path("/dev/shm", self.name)


def holds_secret(data: bytes | str) -> bool:
    """Whether something that was read is the caller's."""
    return SECRET in data if isinstance(data, str) else SECRET.encode() in data


def arrived(number: int) -> bool:
    """Whether the caller, which blocks those signals, was sent one by an attack."""
    return signal.sigtimedwait({number}, 0) is not None


BY_KILL, BY_GROUP, BY_PIDFD, BY_DESCRIPTOR, BY_QUEUE = range(signal.SIGRTMIN + 1, signal.SIGRTMIN + 6)
"""Signals that the caller blocks: one for each way to send it one."""
