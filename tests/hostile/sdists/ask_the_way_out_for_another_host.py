"""Ask whoever lets installers out for a host that is none of theirs; without one, go there directly."""

from __future__ import annotations

import os
import socket
from typing import Any
from urllib.parse import urlsplit


def attack(places: dict[str, Any]) -> None:
    proxy = urlsplit(os.environ.get("https_proxy", ""))
    place = (proxy.hostname, proxy.port) if proxy.hostname else ("127.0.0.1", places["port"])
    with socket.create_connection(place, 10) as connection:
        if proxy.hostname:
            connection.sendall(f"CONNECT 127.0.0.1:{places['port']} HTTP/1.1\r\n\r\n".encode())
        answer = connection.recv(100)
        assert answer == b"reached", answer
