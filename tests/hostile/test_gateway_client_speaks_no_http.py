"""A client that speaks something else than HTTP, or TLS where there is none: it is told, and nothing is logged."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.unit.gateway_lab import lab


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n: no name\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad name: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: \x00\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n",
    ],
)
async def test_what_is_no_request_is_an_error_object(said: bytes) -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            await client.send(said)
            await client.until(b"}}")
        assert re.match(rb"HTTP/1.1 (400|404) ", client.got)
        assert b'{"error": {"message": ' in client.got
        assert (await made.post(session)).status == 200


PROGRAM = """
import asyncio
from tests.unit.gateway_lab import lab

async def main():
    async with lab() as made:
        session = made.open()
        await made.exchange(b"\\x16\\x03\\x01 no request\\r\\n\\r\\n")
        await made.post(session, b"{")
        async with made.asking(session):
            pass
        get = f"GET {session.path}/models HTTP/1.1\\r\\nhost: x\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\n"
        async with made.client() as client:
            await client.send(f"{get}authorization: Bearer {session.key}\\r\\n\\r\\n".encode())
            await client.until(b"200")

asyncio.run(main())
"""


def test_nothing_that_a_client_does_is_written_anywhere() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
