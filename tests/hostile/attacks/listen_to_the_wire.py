"""Makes a socket that receives all packets of the machine."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return True
