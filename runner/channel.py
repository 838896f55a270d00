"""One end of a channel on an event loop: frames in, messages out, and the other way round.

Used on both sides, so it is shipped into the worker. Messages of one turn of the loop leave in one system call, except
that many are not held back until its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from .errors import FrameError
from .frames import FrameParser
from .limits import KIB, MIB
from .protocol import AnyMessage, MessageDecoder, encode

M = TypeVar("M")

FLUSH_BYTES: Final = 64 * KIB
"""Queued in one turn of the loop before it leaves at once: the other end can begin with it."""

WINDOW_BYTES: Final = 1 * MIB
"""Sent and not yet taken by the operating system before a sender has to wait. Much more brings no speed."""


class Channel(asyncio.BufferedProtocol, Generic[M]):
    """A framed channel over a stream socket.

    Args:
        decoder: Of the messages that come in.
        on_message: Called with each of them, in order, on the loop. A `FrameError` it raises ends the channel.
        on_end: Called once when nothing more will come: with `None` at an orderly end of stream, else with the error.
    """

    def __init__(
        self,
        decoder: MessageDecoder[M],
        on_message: Callable[[M], None],
        on_end: Callable[[FrameError | None], None],
    ) -> None:
        self._decode = decoder.decode
        self._on_message = on_message
        self._on_end = on_end
        self._parser = FrameParser()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self.reads = 0
        """How often something arrived."""
        self.full = False
        """Whether the other end is so slow that whoever can wait before sending more should: see `drained`."""

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        decoder: MessageDecoder[M],
        on_message: Callable[[M], None],
        on_end: Callable[[FrameError | None], None],
    ) -> Channel[M]:
        """Take over a connected Unix socket."""
        sock.setblocking(False)
        _, channel = await asyncio.get_running_loop().create_unix_connection(
            lambda: cls(decoder, on_message, on_end), sock=sock
        )
        return channel

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def send(self, message: AnyMessage) -> None:
        """Queue one message; it leaves at the end of this turn of the loop. After the end it is dropped.

        Raises:
            FrameError: the message cannot be encoded or is too large; nothing was queued.
        """
        self.send_frame(encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Queue a message that is a frame already."""
        if self._ended:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what is queued to the operating system now, as far as it takes it."""
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0

    async def drained(self) -> None:
        """Wait until the other end has taken most of what was sent, or the channel has ended."""
        self.flush()
        await self._writable.wait()

    def unsent(self) -> int:
        """Bytes the operating system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what is queued and close. `on_end` is not called for it."""
        self.flush()
        self._ended = True
        self.resume_writing()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by asyncio)."""
        # by what it can do, not by its class: those of uvloop have another
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WINDOW_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what arrives (called by asyncio)."""
        return self._parser.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Cut, decode and pass on what arrived (called by asyncio)."""
        if self._ended:
            return
        self.reads += 1
        try:
            for body in self._parser.arrived(nbytes):
                self._on_message(self._decode(body))
                if self.ended:
                    return
        except FrameError as error:
            self._end(error)

    def eof_received(self) -> bool:
        """Report the end of the stream (called by asyncio)."""
        try:
            self._parser.finish()
        except FrameError as error:
            self._end(error)
        else:
            self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report a broken connection (called by asyncio); a reset means the same as an end."""
        if exc is not None:
            self._read_rest()
        self._end(None)

    def pause_writing(self) -> None:
        """Note that the other end is slow (called by asyncio)."""
        self.full = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that the other end has caught up (called by asyncio)."""
        self.full = False
        self._writable.set()

    def _read_rest(self) -> None:
        """Take in what the other end had sent: a write that failed ends the transport, whatever is still to be read."""
        assert self._transport is not None
        with contextlib.suppress(OSError):
            descriptor = self._transport.get_extra_info("socket").fileno()
            while not self._ended:
                count = os.readv(descriptor, [self.get_buffer(-1)])
                if count == 0:
                    self.eof_received()
                    return
                self.buffer_updated(count)

    def _end(self, error: FrameError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self.resume_writing()
        if error is not None and self._transport is not None:
            self._transport.abort()
        self._on_end(error)
