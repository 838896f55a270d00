"""Makes a socket to the kernel's ciphers, a corner with a history."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
    return True
