"""Makes a socket to the hypervisor."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return True
