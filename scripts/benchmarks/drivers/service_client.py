"""Clients of a service that cost as little as possible, so that the service is what is measured.

streams URL KEY EACH         watches each validation whose id is a line of standard input that often; prints a line when
                             all watch, and at the end of all streams the milliseconds that each event took, and errors
uploads URL KEY LANES BYTES SECONDS      sends files, so many at a time; prints how many, in how long, and errors
requests URL KEY COUNT AT_ONCE METHOD PATH [BODY]     prints requests per second
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
import time
from typing import Any
from urllib.parse import urlsplit

WATCH_S = 120.0


class Connection:
    """One connection, kept open."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._key = parts.hostname or "", parts.port or 80, key

    async def connect(self) -> Connection:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    def write(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> None:
        """Send a request."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._key}\r\n"
        if method != "GET":
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)

    async def head(self) -> tuple[int, bytes]:
        """Read the beginning of an answer: its status and headers."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        return int(head[9:12]), head.lower()

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> tuple[int, bytes]:
        """Ask, and return status and content of the answer."""
        self.write(method, path, body, kind)
        status, head = await self.head()
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            return status, await self._reader.readexactly(int(length[1]))
        content = bytearray()
        while piece := await self.chunk():
            content += piece
        return status, bytes(content)

    async def chunk(self) -> bytes:
        """Read a piece of an answer that comes in pieces; nothing at its end."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def streams(url: str, key: str, each: int) -> dict[str, Any]:
    """Watch validations until they are over."""
    took: list[float] = []
    errors: list[str] = []
    watching = asyncio.Barrier(each * len(ids := sys.stdin.read().split()) + 1)

    async def watch(job_id: str) -> None:
        connection = await Connection(url, key).connect()
        connection.write("GET", f"/api/v1/validations/{job_id}/events")
        status, _ = await connection.head()
        await connection.chunk()
        await watching.wait()
        if status != 200:
            errors.append(f"status {status}")
            return
        last, ended = 0, False
        while piece := await connection.chunk():
            now = time.monotonic()
            for message in piece.decode().split("\n\n"):
                found = re.match(r"id: (\d+)\nevent: (\w+)\ndata: (.*)", message)
                if found is None:
                    continue
                if int(found[1]) != last + 1:
                    errors.append(f"event {found[1]} after {last}")
                last, ended = int(found[1]), found[2] == "end"
                if found[2] == "log":
                    took.append((now - json.loads(found[3])["sent"]) * 1000)
        if not ended:
            errors.append("a stream ended early")
        connection.close()

    async def all_of_them() -> None:
        results = await asyncio.gather(*(watch(job_id) for job_id in ids for _ in range(each)), return_exceptions=True)
        errors.extend(repr(result) for result in results if result is not None)

    async with asyncio.timeout(WATCH_S):
        running = asyncio.create_task(all_of_them())
        await watching.wait()
        print("watching", flush=True)
        await running
    return {"took": sorted(took), "errors": errors}


async def uploads(url: str, key: str, lanes: int, size: int, seconds: int) -> dict[str, Any]:
    """Send files."""
    content = bytearray(os.urandom(size))
    counts = {"files": 0}
    errors: list[str] = []
    until = time.monotonic() + seconds

    async def lane(number: int) -> None:
        connection = await Connection(url, key).connect()
        while time.monotonic() < until:
            content[:16] = os.urandom(16)
            body = bytes(content)
            asked = {"path": f"lane-{number}/file", "bytes": size, "sha256": hashlib.sha256(body).hexdigest()}
            status, answer = await connection.ask("POST", "/api/v1/uploads", json.dumps(asked).encode())
            if status == 201:
                place = urlsplit(json.loads(answer)["url"])
                kind = "application/octet-stream"
                status, answer = await connection.ask("PUT", f"{place.path}?{place.query}", body, kind)
            if status == 201:
                counts["files"] += 1
            else:
                errors.append(f"status {status}: {answer[:200]!r}")
        connection.close()

    began = time.monotonic()
    results = await asyncio.gather(*(lane(number) for number in range(lanes)), return_exceptions=True)
    errors.extend(repr(result) for result in results if result is not None)
    return {**counts, "seconds": time.monotonic() - began, "errors": errors}


async def requests(url: str, key: str, count: int, at_once: int, method: str, path: str, body: str = "") -> float:
    """Return requests per second."""
    connections = [await Connection(url, key).connect() for _ in range(at_once)]
    numbers = iter(range(count))

    async def lane(connection: Connection) -> None:
        for _ in numbers:
            status, answer = await connection.ask(method, path, body.encode())
            if status not in (200, 201):
                raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")

    began = time.perf_counter()
    await asyncio.gather(*(lane(connection) for connection in connections))
    rate = count / (time.perf_counter() - began)
    for connection in connections:
        connection.close()
    return rate


async def main() -> None:
    """Measure what was asked for."""
    what, url, key, *rest = sys.argv[1:]
    if what == "streams":
        print(json.dumps(await streams(url, key, int(rest[0]))))
    elif what == "uploads":
        print(json.dumps(await uploads(url, key, *map(int, rest))))
    else:
        print(json.dumps(await requests(url, key, int(rest[0]), int(rest[1]), *rest[2:])))


if __name__ == "__main__":
    asyncio.run(main())
