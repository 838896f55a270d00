"""The connected stream: frames come in and go out, objects as JSON and data of numbered channels."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from typing import Final

MAX_FRAME: Final = 1024 * 1024 + 64
"""Kind and payload of one frame."""

PIECE: Final = 256 * 1024
"""Data of one frame that is sent."""


class RequestError(Exception):
    """What was asked for cannot be done; goes out as the answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Stream:
    """The connected socket; frames of several threads go out whole, and whoever sends waits for the other end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reader = sock.makefile("rb")
        self._lock = threading.Lock()

    def frame(self) -> tuple[bytes, bytes] | None:
        """Return the next frame's kind and payload, or nothing when the stream has ended or makes no sense."""
        try:
            head = self._reader.read(4)
            size = struct.unpack(">I", head)[0] if len(head) == 4 else 0
            if not 0 < size <= MAX_FRAME:
                return None
            body = self._reader.read(size)
        except OSError:
            return None
        return (body[:1], body[1:]) if len(body) == size else None

    def send(self, kind: bytes, *parts: bytes) -> None:
        """Send one frame; the end of the stream is the end of this program."""
        head = struct.pack(">I", 1 + sum(map(len, parts))) + kind
        try:
            with self._lock:
                self._socket.sendall(b"".join((head, *parts)))
        except OSError:
            os._exit(0)

    def answer(self, **message: object) -> None:
        """Send one object."""
        self.send(b"J", json.dumps(message).encode())

    def data(self, channel: int, data: bytes) -> None:
        """Send data of a channel."""
        self.send(b"D", struct.pack(">I", channel), data)
