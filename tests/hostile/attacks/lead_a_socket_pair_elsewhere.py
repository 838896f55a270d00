"""Takes a pair of sockets, which everybody may have, and connects one of them to a socket file."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    mine.connect(str(target.home / "log"))
    return mine.send(b"planted") > 0
