"""One end of a channel over a real socket: order, ends in every way, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from runner.channel import Channel
from runner.errors import FrameError
from runner.limits import MAX_FRAME_BYTES
from runner.protocol import (
    HEADER,
    CallDone,
    Cancel,
    FromWorker,
    Transcript,
    encode,
    from_worker_decoder,
)


class End:
    """The caller's end of a channel, and the bare socket at the other."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.got: list[FromWorker] = []
        self.ends: list[FrameError | None] = []
        self.over = asyncio.Event()
        self.channel: Channel[FromWorker]
        self.refuse: int | None = None

    async def open(self) -> None:
        self.channel = await Channel.open(self.ours, from_worker_decoder(), self.on_message, self.on_end)

    def on_message(self, message: FromWorker) -> None:
        assert not self.ends, "nothing comes after the end"
        if isinstance(message, CallDone) and message.call == self.refuse:
            raise FrameError("refused by its meaning")
        self.got.append(message)

    def on_end(self, error: FrameError | None) -> None:
        self.ends.append(error)
        self.over.set()

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.theirs, data)

    async def hear(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await asyncio.get_running_loop().sock_recv(self.theirs, size - len(data))
            assert more
            data += more
        return data


@pytest.fixture
async def end() -> AsyncIterator[End]:
    end = End()
    await end.open()
    yield end
    end.channel.close()
    end.theirs.close()
    # the transport closes its socket in a later turn of the loop
    while end.ours.fileno() != -1:
        await asyncio.sleep(0)


def done(*calls: int) -> bytes:
    return b"".join(encode(CallDone(call=call)) for call in calls)


async def test_messages_arrive_in_order_however_they_are_cut(end: End) -> None:
    data = done(*range(200))
    for begin in range(0, len(data), 7):
        await end.say(data[begin : begin + 7])
    end.theirs.shutdown(socket.SHUT_WR)
    await end.over.wait()
    assert end.got == [CallDone(call=call) for call in range(200)]
    assert end.ends == [None]
    assert end.channel.ended


async def test_what_is_sent_in_one_turn_leaves_in_order(end: End) -> None:
    messages = [Cancel(call=number) for number in range(100)]
    for message in messages:
        end.channel.send(message)
    expected = b"".join(map(encode, messages))
    assert await end.hear(len(expected)) == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\0", "a frame announces 0 bytes"),
        (HEADER.pack(MAX_FRAME_BYTES + 1), f"a frame announces {MAX_FRAME_BYTES + 1} bytes"),
        (HEADER.pack(3) + b"abc", "not a valid message"),
        (encode(Cancel(call=1)), "not a valid message: Invalid value 'cancel'"),
        (b"print", "a frame announces 1886546286 bytes"),
    ],
)
async def test_a_broken_frame_ends_the_channel_with_its_error_after_what_came_before(
    end: End, data: bytes, text: str
) -> None:
    await end.say(done(1, 2) + data + done(3))
    await end.over.wait()
    assert end.got == [CallDone(call=1), CallDone(call=2)]
    (error,) = end.ends
    assert text in str(error)


async def test_a_message_refused_for_what_it_means_ends_the_channel_too(end: End) -> None:
    end.refuse = 2
    await end.say(done(1, 2, 3))
    await end.over.wait()
    assert end.got == [CallDone(call=1)]
    assert str(end.ends[0]) == "refused by its meaning"


@pytest.mark.parametrize(
    ("data", "text"), [(b"\0\0", "inside a frame's header"), (HEADER.pack(10) + b"abc", "inside a frame's body")]
)
async def test_a_stream_that_ends_inside_a_frame_is_an_error(end: End, data: bytes, text: str) -> None:
    await end.say(done(1) + data)
    end.theirs.close()
    await end.over.wait()
    assert end.got == [CallDone(call=1)]
    assert text in str(end.ends[0])


async def test_a_connection_reset_is_an_end(end: End) -> None:
    # closing with something unread resets the other end
    end.channel.send(Cancel(call=1))
    end.channel.flush()
    end.theirs.close()
    await end.over.wait()
    assert end.ends == [None]


async def test_what_had_come_before_a_write_failed_is_read(end: End) -> None:
    # many reads' worth; the peer is gone before our loop has had a turn to read any of it
    calls = range(1, 2_001)
    end.theirs.sendall(done(*calls))
    end.theirs.close()
    end.channel.send(Cancel(call=1))
    end.channel.flush()
    await end.over.wait()
    assert [message.call for message in end.got if isinstance(message, CallDone)] == [*calls]
    assert end.ends == [None]


async def test_a_frame_cut_off_before_a_write_failed_is_an_error(end: End) -> None:
    end.theirs.sendall(done(1, 2)[:-1])
    end.theirs.close()
    end.channel.send(Cancel(call=1))
    end.channel.flush()
    await end.over.wait()
    (error,) = end.ends
    assert error is not None
    assert error.unfinished


async def test_after_the_end_what_is_sent_is_dropped(end: End) -> None:
    end.theirs.close()
    await end.over.wait()
    end.channel.send(Cancel(call=1))
    await end.channel.drained()
    assert end.channel.unsent() == 0


async def test_closing_sends_what_is_queued_and_reports_no_end(end: End) -> None:
    end.channel.send(Cancel(call=5))
    end.channel.close()
    end.channel.close()
    frame = encode(Cancel(call=5))
    assert await end.hear(len(frame)) == frame
    assert await asyncio.get_running_loop().sock_recv(end.theirs, 1) == b""
    assert end.ends == []


async def test_a_message_that_cannot_be_sent_raises_and_the_channel_goes_on(end: End) -> None:
    with pytest.raises(FrameError, match="cannot send a Cancel message"):
        end.channel.send(Cancel(call=-1))
    end.channel.send(Cancel(call=1))
    frame = encode(Cancel(call=1))
    assert await end.hear(len(frame)) == frame


async def test_a_slow_reader_can_be_waited_for(end: End) -> None:
    message = Transcript(call=1, rollout_id="r", messages=bytes(8_000_000))
    frame = encode(message)
    end.channel.send(message)
    waiting = asyncio.ensure_future(end.channel.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert end.channel.unsent() > 1_000_000
    assert await end.hear(len(frame)) == frame
    await waiting


async def test_waiting_for_a_slow_reader_ends_with_the_channel(end: End) -> None:
    end.channel.send(Transcript(call=1, rollout_id="r", messages=bytes(8_000_000)))
    waiting = asyncio.ensure_future(end.channel.drained())
    await asyncio.sleep(0)
    end.theirs.close()
    await waiting


async def test_what_a_peer_sends_after_it_was_refused_is_not_looked_at(end: End) -> None:
    await end.say(b"\0\0\0\0")
    await end.over.wait()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(1000):
            await end.say(done(1) * 1000)
    assert end.got == []
    assert len(end.ends) == 1
