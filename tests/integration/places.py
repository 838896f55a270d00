"""Servers on loopback that stand for places elsewhere: the caller looks their names up, and finds them here.

Those with a port from 1024 on have it here too, for callers that take only an address from a look-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

FIRST_FREE = 1024
"""The first port that anybody may listen on."""


class Places:
    """Which port of this machine stands for which host and port; everything else is looked up as ever.

    Args:
        monkeypatch: Puts it in the place of the caller's look-ups.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._known: dict[tuple[str, int], tuple[str, int]] = {}
        real = socket.getaddrinfo

        def look_up(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
            here = self._known.get((host.decode() if isinstance(host, bytes) else host, port))
            return real(host, port, *arguments, **options) if here is None else real(*here, **options)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    @asynccontextmanager
    async def model(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Model]:
        """Serve a model that says which host it is."""
        model = Model(host)
        async with self.serve(host, port, model.serve, tls=tls):
            yield model

    @asynccontextmanager
    async def serve(
        self,
        host: str,
        port: int,
        handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator[None]:
        """Have a handler take the connections to a host and port."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await handler(reader, writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        # each on an address of its own, so that two with the same port are two
        address = f"127.77.{secrets.randbelow(250)}.{secrets.randbelow(250) + 1}"
        server = await asyncio.start_server(handle, address, port if port >= FIRST_FREE else 0, ssl=tls)
        self._known[host, port] = server.sockets[0].getsockname()[:2]
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()


class Model:
    """A model's server, as far as a client needs one: it names itself, or counts in a stream.

    Args:
        name: What it says that it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.headers: list[dict[str, str]] = []
        self._seen = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            self.headers.append(headers)
            if "piece" in body:
                self._seen.set()
                self._send(writer, "application/json", b"{}")
            elif body.get("stream"):
                await self._count(writer)
            else:
                message = {"role": "assistant", "content": self.name}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
                self._send(writer, "application/json", json.dumps(answer).encode())
            await writer.drain()

    def _send(self, writer: asyncio.StreamWriter, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async def _count(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in ("one", "two", "three"):
            self._seen.clear()
            choice = {"index": 0, "delta": {"content": piece}}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            self._chunk(writer, f"data: {json.dumps(chunk)}\n\n".encode())
            await self._seen.wait()
        self._chunk(writer, b"data: [DONE]\n\n")
        self._chunk(writer, b"")

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """Make an authority, and a certificate of it for a name; return the authority's, and what a server needs."""
    authority, key, chain = folder / "authority.pem", folder / "key.pem", folder / "chain.pem"
    extensions: Mapping[str, str] = {
        "authority": "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n",
        "server": f"subjectAltName=DNS:{name}\nauthorityKeyIdentifier=keyid\nextendedKeyUsage=serverAuth\n",
    }
    for kind, text in extensions.items():
        (folder / f"{kind}.cnf").write_text(f"[req]\ndistinguished_name=dn\nx509_extensions=own\n[dn]\n[own]\n{text}")
    new = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test"]
    new += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    run = [
        [*new, "-config", "authority.cnf", "-keyout", "ca-key.pem", "-out", authority],
        [*new, "-config", "server.cnf", "-CA", authority, "-CAkey", "ca-key.pem", "-keyout", key, "-out", chain],
    ]
    for command in run:
        subprocess.run([*map(str, command)], cwd=folder, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    return authority, context
