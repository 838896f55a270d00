"""Connects to an abstract socket, which has no file and no mode."""

from __future__ import annotations

import socket

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{target.name}")
    return True
