"""A client that announces a body and sends none of it, or stops midway, does not hold a connection for ever."""

from __future__ import annotations

import pytest

from runner.gateway import client, server
from tests.unit.gateway_lab import lab


@pytest.mark.parametrize("sent", [b"", b'{"model": '])
async def test_a_body_that_does_not_come_ends_the_request(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client, server):
        monkeypatch.setattr(module, "GATEWAY_REQUEST_S", 0.2)
    async with lab() as made, made.client() as raw:
        session = made.open()
        head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {session.key}\r\n"
        await raw.send(head.encode() + b"content-length: 100\r\n\r\n" + sent)
        await raw.until(b"}}")
        assert b"HTTP/1.1 408" in raw.got
        assert b'"error"' in raw.got
        assert made.endpoint.asked == []
