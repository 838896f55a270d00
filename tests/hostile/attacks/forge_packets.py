"""Makes a socket for packets of its own making."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return True
