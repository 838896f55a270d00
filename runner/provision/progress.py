"""What provisioning says while it works: phases, bytes and the time passed, for a command line or a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

Phase = Literal["interpreter", "resolve", "download", "build", "install", "compile", "cached"]

_UNITS: Final = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = rf"\((\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})\)"
_DOWNLOADING: Final = re.compile(rf"Downloading (\S+) {_SIZE}$")
_DOWNLOADED: Final = re.compile(r"Downloaded (\S+)$")
_BUILDING: Final = (
    # uv's, then pip's
    re.compile(r"(?:Building|Built) (\S+)(?: @ \S+)?$"),
    re.compile(r"Building wheel for (\S+) \([^)]*\): started$"),
    re.compile(r"(Preparing metadata|Installing build dependencies|Getting requirements to build wheel)\b.*: started$"),
)
_REPORT_BYTES: Final = 4 * 2**20
_REPORT_S: Final = 2.0
"""What is written is reported each time both have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionEvent:
    """One step of provisioning.

    Args:
        phase: What is being done: `interpreter`, `resolve` and `install` for a new venv, with `download` and `build`
            in between as far as the installer tells; `cached` alone, after `interpreter`, when the venv existed.
        message: One line for a person.
        elapsed_s: Seconds since provisioning began.
        bytes_done: Of the files announced so far, the bytes that have arrived; `None` in other phases than
            `download`. Installers announce large files only, and say when a file is complete, not how much of it.
        bytes_total: Bytes of all files announced so far.
        bytes_written: Bytes the installer has written to disk, unpacked ones among them: grows while a large file
            arrives. `None` where it says nothing.
    """

    phase: Phase
    message: str
    elapsed_s: float
    bytes_done: int | None = None
    bytes_total: int | None = None
    bytes_written: int | None = None


@dataclass(slots=True)
class _Downloads:
    """Sizes of announced files by name, and the names of those that have arrived."""

    sizes: dict[str, int] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def done(self) -> int:
        return sum(self.sizes[name] for name in self.arrived)


class Progress:
    """Counts the time of one provisioning and hands events to whoever listens."""

    def __init__(self, on_event: Callable[[ProvisionEvent], None] | None) -> None:
        self._on_event = on_event
        self._begun = time.monotonic()
        self._downloads = _Downloads()
        self._reported_bytes = 0
        self._reported_at = self._begun

    @property
    def elapsed_s(self) -> float:
        """Seconds since provisioning began."""
        return time.monotonic() - self._begun

    def tell(self, phase: Phase, message: str) -> None:
        """Report one step; what the listener raises reaches the caller of provisioning."""
        self._send(ProvisionEvent(phase=phase, message=message, elapsed_s=self.elapsed_s))

    def line(self, phase: Phase, line: str, *, steps_only: bool = False) -> None:
        """Report a line of an installer's output, as what it is: a download, a build, or something else.

        Args:
            phase: What the installer was started for.
            line: The line, without credentials.
            steps_only: Report only what is known to be a step: an installer's standard output holds more than that.
        """
        line = line.strip()
        if match := _DOWNLOADING.search(line):
            # uv names packages; pip names files, loads them one after the other and does not say when one is there
            if "." in match[1]:
                self._downloads.arrived.update(self._downloads.sizes)
            self._downloads.sizes[match[1]] = int(float(match[2]) * _UNITS[match[3]])
            self._tell_download(line)
        elif (match := _DOWNLOADED.search(line)) and match[1] in self._downloads.sizes:
            self._downloads.arrived.add(match[1])
            self._tell_download(line)
        elif any(pattern.search(line) for pattern in _BUILDING):
            self.tell("build", line)
        elif not steps_only:
            self.tell(phase, line)

    def written(self, phase: Phase, count: int) -> None:
        """Report how much an installer has written, not more often than a person wants to know it.

        Args:
            phase: What the installer was started for.
            count: Bytes since it was started.
        """
        now = time.monotonic()
        if count < self._reported_bytes:
            # another program of the same provisioning
            self._reported_bytes = 0
        if count - self._reported_bytes < _REPORT_BYTES or now - self._reported_at < _REPORT_S:
            return
        self._reported_bytes, self._reported_at = count, now
        self._send(
            ProvisionEvent(
                phase=phase,
                message=f"{count / 1e6:.0f} MB written so far",
                elapsed_s=self.elapsed_s,
                bytes_written=count,
            )
        )

    def _tell_download(self, message: str) -> None:
        done, total = self._downloads.done, self._downloads.total
        self._send(
            ProvisionEvent(
                phase="download",
                message=f"{message} · {done / 1e6:.1f} of {total / 1e6:.1f} MB",
                elapsed_s=self.elapsed_s,
                bytes_done=done,
                bytes_total=total,
            )
        )

    def _send(self, event: ProvisionEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
