"""An endpoint that hangs up: before its answer, in its head, in its body, in a stream, in the middle of an event."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import QUESTION, Asked, Wire, chunk, lab

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 2",
        HEAD,
        HEAD + b'content-length: 100\r\n\r\n{"choices": []',
        HEAD + b'transfer-encoding: chunked\r\n\r\n5\r\n{"cho\r\n',
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    ],
)
@pytest.mark.parametrize("reset", [False, True])
async def test_an_endpoint_that_hangs_up_is_an_error_that_may_be_tried_again(sent: bytes, reset: bool) -> None:
    async def hang_up(_: Asked, wire: Wire) -> None:
        await wire.send(sent)
        if reset:
            wire.writer.transport.abort()
        else:
            wire.writer.close()

    async with lab() as made:
        made.endpoint.doing = hang_up
        answer = await made.post(made.open())
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_closed", "true")


@pytest.mark.parametrize("last", [b"", b'data: {"choices": [{"index": 0, "del'])
async def test_a_stream_that_breaks_off_ends_with_the_reason_and_without_half_an_event(last: bytes) -> None:
    async def break_off(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk("4"))
        if last:
            await wire.chunk(last)
        wire.writer.close()

    async with lab() as made:
        made.endpoint.doing = break_off
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        first, error = answer.events
        assert first["choices"][0]["delta"] == {"content": "4"}
        assert error["error"]["code"] == "upstream_closed"
        assert answer.body.endswith(b"\n\n")
