"""Connects to a server on loopback."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with socket.socket() as client:
        client.connect(("127.0.0.1", target.port))
    return True
