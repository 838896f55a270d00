"""A client that costs as little as possible, so that what is between it and the model is what is measured.

latency URL KEY COUNT        microseconds of one call after another, as a JSON list
first URL KEY COUNT          the same until the first event of a stream
throughput URL KEY COUNT AT_ONCE     calls per second
streams URL KEY COUNT        opens as many at once, prints a line when each has had an event, reads them to the end
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from urllib.parse import urlsplit

PAUSE_S = 0.003
MESSAGES = [{"role": "user", "content": "What is 6 times 7? " * 10}]


class Caller:
    """One connection, kept open."""

    def __init__(self, url: str, key: str, **body: object) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        content = json.dumps({"model": "m", "messages": MESSAGES, **body}).encode()
        head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._request = head.encode() + content

    async def connect(self) -> Caller:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def head(self) -> bool:
        """Ask, and read until the body begins; say whether it is chunked."""
        self._writer.write(self._request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{head!r} {await self._reader.read(2000)!r}")
        self._length = None if b"chunked" in head else int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        return self._length is None

    async def chunk(self) -> bytes:
        """Read a chunk."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def rest(self) -> None:
        """Read the body to its end."""
        if self._length is not None:
            await self._reader.readexactly(self._length)
            return
        while await self.chunk():
            pass

    async def call(self) -> None:
        """Ask, and read the whole answer."""
        await self.head()
        await self.rest()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def latency(url: str, key: str, count: int) -> list[float]:
    """Time one call after another."""
    caller = await Caller(url, key).connect()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await caller.call()
        times.append((time.perf_counter() - began) * 1e6)
    caller.close()
    return times


async def first(url: str, key: str, count: int) -> list[float]:
    """Time one stream after another until its first event."""
    caller = await Caller(url, key, stream=True).connect()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await caller.head()
        await caller.chunk()
        times.append((time.perf_counter() - began) * 1e6)
        await caller.rest()
        # what is still to be done for one stream is no part of the next
        await asyncio.sleep(PAUSE_S)
    caller.close()
    return times


async def throughput(url: str, key: str, count: int, at_once: int) -> float:
    """Calls per second."""
    callers = [await Caller(url, key).connect() for _ in range(at_once)]
    numbers = iter(range(count))

    async def lane(caller: Caller) -> None:
        for _ in numbers:
            await caller.call()

    await asyncio.gather(*(caller.call() for caller in callers))
    began = time.perf_counter()
    await asyncio.gather(*(lane(caller) for caller in callers))
    rate = count / (time.perf_counter() - began)
    for caller in callers:
        caller.close()
    return rate


async def streams(url: str, key: str, count: int) -> float:
    """Hold many streams open at once; return the seconds from the first request to the last first event."""
    callers = [await Caller(url, key, stream=True, hold=True).connect() for _ in range(count)]
    began = time.perf_counter()

    async def begin(caller: Caller) -> None:
        await caller.head()
        await caller.chunk()

    await asyncio.gather(*(begin(caller) for caller in callers))
    seconds = time.perf_counter() - began
    print("held", flush=True)
    await asyncio.gather(*(caller.rest() for caller in callers))
    for caller in callers:
        caller.close()
    return seconds


async def main() -> None:
    """Measure what was asked for."""
    what, url, key, *numbers = sys.argv[1:]
    ways = {"latency": latency, "first": first, "throughput": throughput, "streams": streams}
    found = await ways[what](url, key, *map(int, numbers))  # type: ignore[operator]  # each takes what it is given
    print(json.dumps(found if isinstance(found, float) else statistics.median(found)))


if __name__ == "__main__":
    asyncio.run(main())
