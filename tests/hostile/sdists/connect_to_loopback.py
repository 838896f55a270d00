"""Connect to a service of the caller's machine."""

from __future__ import annotations

import socket
from typing import Any


def attack(places: dict[str, Any]) -> None:
    with socket.create_connection(("127.0.0.1", places["port"]), 10) as connection:
        assert connection.recv(100) == b"reached"
