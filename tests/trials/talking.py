"""A client of a trial sandbox that waits for each answer, and sandboxes of callers that are root or ordinary users."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.sandbox.machine import look
from runner.sandbox.probe import LAUNCHER, availability, network_blocker
from runner.sandbox.view import interpreter
from tests.confined import BASE, ORDINARY, Caller, caller_steps
from tests.conftest import require

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    out: str
    err: str
    exit: int
    signal: int | None
    timed_out: bool


class RefusedError(Exception):
    """An answer that says that something failed; `kind` is what kind of."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EndedError(Exception):
    """The stream has ended."""


class Talk:
    """One client.

    Args:
        stream: The connected socket.
    """

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(True)
        stream.settimeout(PATIENCE_S)
        self.stream = stream
        self._reader = stream.makefile("rb")
        self._last = 0
        self.ready = self.frame()[1]

    def close(self) -> None:
        """Close the stream."""
        self._reader.close()
        self.stream.close()

    def frame(self) -> tuple[int, Any]:
        """Return the next frame: 0 and an object, or a channel and its data."""
        try:
            head = self._reader.read(4)
            body = self._reader.read(struct.unpack(">I", head)[0]) if len(head) == 4 else b""
        except ConnectionResetError:
            body = b""
        if not body:
            raise EndedError
        if body[:1] == b"J":
            return 0, json.loads(body[1:])
        assert body[:1] == b"D"
        return struct.unpack_from(">I", body, 1)[0], body[5:]

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send one frame."""
        self.stream.sendall(struct.pack(">I", 1 + len(payload)) + kind + payload)

    def ask(self, **request: object) -> int:
        """Send a request without waiting for its answer; return its number."""
        self._last += 1
        self.send(b"J", json.dumps({"id": self._last, **request}).encode())
        return self._last

    def answer(self, number: int, data: dict[int, bytearray] | None = None) -> dict[str, Any]:
        """Wait for an answer, and keep the data that comes before it."""
        while True:
            channel, found = self.frame()
            if channel:
                if data is not None:
                    data.setdefault(channel, bytearray()).extend(found)
            elif found["id"] == number:
                if "error" in found:
                    raise RefusedError(found["error"]["kind"], found["error"]["message"])
                return dict(found)

    def run(self, command: str, **more: object) -> Done:
        """Run a command to its end."""
        data: dict[int, bytearray] = {}
        number = self.ask(op="exec", command=command, **more)
        found = self.answer(number, data)
        out, err = (data.get(2 * number + offset, b"").decode(errors="replace") for offset in (0, 1))
        return Done(out, err, found["exit"], found["signal"], found["timed_out"])

    def said(self, command: str, **more: object) -> str:
        """Run a command that has to succeed; return what it wrote, without space around it."""
        done = self.run(command, **more)
        assert done.exit == 0, done
        return done.out.strip()

    def put(
        self, path: str, content: bytes, *, kind: str = "file", mode: int | None = None, owner: object = None
    ) -> None:
        """Upload a file or an archive."""
        number = self.ask(op="put", path=path, kind=kind, mode=mode, owner=owner)
        for start in range(0, len(content), 65536):
            self.send(b"D", struct.pack(">I", 2 * number) + content[start : start + 65536])
        self.send(b"D", struct.pack(">I", 2 * number))
        assert self.answer(number)["ok"] is True

    def get(self, path: str, kind: str = "file") -> bytes:
        """Download a file, or a folder as an archive."""
        data: dict[int, bytearray] = {}
        number = self.ask(op="get", path=path, kind=kind)
        found = self.answer(number, data)
        content = bytes(data.get(2 * number, b""))
        assert found["bytes"] == len(content)
        return content

    def type_of(self, path: str) -> str | None:
        """Say what is at a path."""
        found: str | None = self.answer(self.ask(op="stat", path=path))["type"]
        return found


def archive_of(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """Make an archive of files with these contents, or of members as they are."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def below(root: int) -> list[int]:
    """List a process and all below it, the outermost first."""
    found, ends = [], [root]
    while ends:
        pid = ends.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                ends += map(int, children.read_text().split())
    return found


@contextmanager
def program(caller: Caller = "root", **request: object) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Start `python -m runner.trials` as a caller; yields the process and the near end of its stream."""
    require(availability("namespaces").available, "bubblewrap and user namespaces")
    require(network_blocker() is None, "network namespaces")
    require("\toverlay\n" in Path("/proc/filesystems").read_text(), "the file system overlay")
    require(look().uid == 0 or caller == "ordinary", "root")
    needed = [str(ROOT), sys.prefix, *interpreter(BASE)]
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-P", "-m", "runner.trials", str(theirs.fileno())]
    # another ordinary user than that of other tests, which count its processes
    order = {
        "steps": caller_steps(ORDINARY - 1 if caller == "ordinary" and os.geteuid() == 0 else os.geteuid(), needed),
        "argv": [*argv, json.dumps({"rollout_id": "trial", **request})],
        "env": {"PATH": "/usr/bin:/bin"},
        "cwd": "/",
        "umask": 0o077,
    }
    source = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        os.write(source, json.dumps(order).encode())
        os.lseek(source, 0, os.SEEK_SET)
        started = subprocess.Popen(
            [BASE, "-I", "-S", str(LAUNCHER), str(source)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[source, theirs.fileno()],
        )
    finally:
        os.close(source)
        theirs.close()
    with ours, started:
        try:
            yield started, ours
        finally:
            ours.close()
            started.wait(PATIENCE_S)


@contextmanager
def opened(caller: Caller = "root", **request: object) -> Iterator[Talk]:
    """Open a sandbox."""
    with program(caller, **request) as (started, stream):
        try:
            talk = Talk(stream)
        except EndedError:
            started.wait(PATIENCE_S)
            assert started.stderr is not None
            raise AssertionError(started.stderr.read().decode()) from None
        try:
            yield talk
        finally:
            talk.close()
