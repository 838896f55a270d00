"""Connects to a socket file, such as a key agent's or a container engine's."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(target.home / "agent"))
    return True
