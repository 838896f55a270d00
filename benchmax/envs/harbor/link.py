"""The near end of a trial sandbox: commands and files over one stream.

Comes in: a connected stream socket, at the other end of which a small program runs inside the sandbox. Goes out: what
commands printed and how they ended, and files. What the sandbox sends may have been made up by what runs in it: frames
are bounded, downloads are bounded, and archives are unpacked by `archive`.

A frame is a four-byte unsigned big-endian length, one byte that names its kind and a payload: `J` is a JSON object, `D`
four bytes with a channel's number and data. Each request has a number `n` of its own; its data is on the channels
`2n` and `2n + 1`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, Literal

MAX_FRAME_BYTES: Final = 1024 * 1024 + 64
"""One frame, kind and payload. A larger one is refused before any of it is read."""

PIECE_BYTES: Final = 64 * 1024
"""Data of one frame that is sent."""

MAX_DOWNLOAD_BYTES: Final = 1024 * 1024 * 1024
"""One download: logs and artifacts of a trial, with spare. More of them would fill the disk of who asks."""

Data = Callable[[bytes], None]


class SandboxError(Exception):
    """Raised when a sandbox could not do what it was asked.

    Args:
        message: What happened.
        kind: `missing`, `refused`, `io` or `invalid`, as the sandbox says.
    """

    def __init__(self, message: str, kind: str = "io") -> None:
        super().__init__(message)
        self.kind = kind


class SandboxEndedError(SandboxError):
    """Raised when the sandbox is gone, or has sent something that no sandbox sends."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    Args:
        exit: Its exit code; 124 when its time was over.
        signal: The signal that ended it, or `None`.
        timed_out: Whether it was killed because its time was over.
    """

    exit: int
    signal: int | None
    timed_out: bool


@dataclass(slots=True)
class _Request:
    """A request without an answer yet, and who takes the data that comes for it."""

    answer: asyncio.Future[dict[str, Any]]
    sinks: Mapping[int, Data] = field(default_factory=dict)

    def fail(self, error: SandboxError) -> None:
        """Take nothing more for it, and have whoever waits know."""
        self.sinks = {}
        if not self.answer.done():
            self.answer.set_exception(error)


class SandboxLink:
    """The near end of one sandbox; belongs to the loop that opened it. Create with `SandboxLink.open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request] = {}
        self._end: SandboxEndedError | None = None
        self._reading: asyncio.Task[None] | None = None
        self.users: Literal["range", "one"] = "one"
        """Whether commands can run as any user, or as one only."""
        self.network = False
        """Whether there is a network."""

    @classmethod
    async def open(cls, stream: socket.socket) -> SandboxLink:
        """Take over a connected stream socket, and wait until the sandbox is ready.

        Raises:
            SandboxEndedError: it ended before that.
        """
        reader, writer = await asyncio.open_connection(sock=stream)
        link = cls(reader, writer)
        try:
            await link._greet()
        except BaseException:
            await link.aclose()
            raise
        link._reading = asyncio.create_task(link._read(), name="benchmax-trial-link")
        return link

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout_s: float | None = None,
        stdout: Data,
        stderr: Data,
    ) -> Finished:
        """Run a command with the sandbox's shell; cancelled, it and what it started are killed.

        Args:
            command: A line for `bash -c`.
            cwd: Where it starts; `None` for `/`.
            env: Variables beside those of the sandbox.
            user: Who runs it, by name or number; `None` for root.
            timeout_s: After that it is killed; `None` for never.
            stdout: Called with each piece of its standard output.
            stderr: The same for standard error.

        Raises:
            SandboxError: it could not be started.
            SandboxEndedError: the sandbox is gone.
        """
        number = next(self._numbers)
        request = {
            "op": "exec",
            "id": number,
            "command": command,
            "cwd": cwd,
            "env": dict(env or {}),
            "user": user,
            "timeout_s": timeout_s,
            "merge": False,
        }
        async with self._asked(number, {2 * number: stdout, 2 * number + 1: stderr}) as answer:
            await self._send_json(request)
            try:
                said = await answer
            except asyncio.CancelledError:
                await self._cancel(number)
                raise
        try:
            code, signal = int(said["exit"]), said.get("signal")
            return Finished(code, None if signal is None else int(signal), bool(said.get("timed_out")))
        except (KeyError, TypeError, ValueError):
            raise self._broken(f"an answer to exec without an exit code: {said!r:.200}") from None

    async def put(
        self,
        source: IO[bytes],
        path: str,
        *,
        kind: Literal["file", "tar"],
        mode: int | None = None,
        owner: str | int | None = None,
    ) -> None:
        """Send a file, or an uncompressed archive to be unpacked below a folder.

        Args:
            source: An open file, read from where it stands.
            path: Where it goes; folders on the way are made.
            kind: What it is.
            mode: Permissions of a file; `None` leaves them to the sandbox.
            owner: Whose it is to be; `None` for root's.

        Raises:
            SandboxError: it could not be written.
            SandboxEndedError: the sandbox is gone.
        """
        number = next(self._numbers)
        async with self._asked(number, {}) as answer:
            await self._send_json({"op": "put", "id": number, "path": path, "mode": mode, "kind": kind, "owner": owner})
            while piece := await asyncio.to_thread(source.read, PIECE_BYTES):
                if answer.done():
                    # it has failed; the end of the data is due all the same
                    break
                await self._send(b"D" + struct.pack(">I", 2 * number) + piece)
            await self._send(b"D" + struct.pack(">I", 2 * number))
            await answer

    async def get(self, path: str, target: IO[bytes], *, kind: Literal["file", "tar"]) -> int:
        """Fetch a file, or a folder as an uncompressed archive; return its size in bytes.

        Args:
            path: What to fetch.
            target: Where it is written.
            kind: As what.

        Raises:
            SandboxError: it could not be read, or is larger than `MAX_DOWNLOAD_BYTES`.
            SandboxEndedError: the sandbox is gone.
        """
        number = next(self._numbers)
        came = 0

        def take(data: bytes) -> None:
            nonlocal came
            came += len(data)
            if came > MAX_DOWNLOAD_BYTES:
                # it may never end
                raise SandboxError(
                    f"{path} has more than {MAX_DOWNLOAD_BYTES} bytes, the most to be fetched.", "refused"
                )
            target.write(data)

        async with self._asked(number, {2 * number: take}) as answer:
            await self._send_json({"op": "get", "id": number, "path": path, "kind": kind})
            await answer
        return came

    async def type_of(self, path: str) -> Literal["file", "folder", "other"] | None:
        """Say what is at a path, links followed; `None` for nothing.

        Raises:
            SandboxError: it cannot be looked at.
            SandboxEndedError: the sandbox is gone.
        """
        number = next(self._numbers)
        async with self._asked(number, {}) as answer:
            await self._send_json({"op": "stat", "id": number, "path": path})
            found = (await answer).get("type")
        match found:
            case "file" | "folder" | "other" | None:
                return found
            case _:
                raise self._broken(f"an answer to stat with the type {found!r:.200}")

    async def aclose(self) -> None:
        """Close the stream, which ends the sandbox. Safe to call twice."""
        if self._end is None:
            self._finish(SandboxEndedError("the sandbox was closed."))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # -- out ----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _asked(self, number: int, sinks: Mapping[int, Data]) -> AsyncIterator[asyncio.Future[dict[str, Any]]]:
        if self._end is not None:
            raise self._end
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(answer, sinks)
        try:
            yield answer
        finally:
            self._requests.pop(number, None)
            if answer.done() and not answer.cancelled():
                # nobody may have waited for it
                answer.exception()

    async def _cancel(self, of: int) -> None:
        # a sandbox that is gone has ended the command, too
        with contextlib.suppress(SandboxEndedError):
            await self._send_json({"op": "cancel", "id": next(self._numbers), "of": of})

    async def _send_json(self, message: dict[str, Any]) -> None:
        payload = b"J" + json.dumps(message).encode()
        if len(payload) > MAX_FRAME_BYTES:
            raise SandboxError(
                f"a request of {len(payload)} bytes does not fit a frame of {MAX_FRAME_BYTES}. "
                "Put what is long into a file.",
                "invalid",
            )
        await self._send(payload)

    async def _send(self, frame: bytes) -> None:
        if self._end is not None:
            raise self._end
        # one call, so that frames of different tasks do not get into each other
        self._writer.write(struct.pack(">I", len(frame)) + frame)
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._finish(SandboxEndedError(f"the sandbox has ended ({error.strerror}).")) from error

    # -- in -----------------------------------------------------------------------------------------------

    async def _greet(self) -> None:
        kind, payload = await self._frame()
        said = self._object(payload) if kind == b"J" else {}
        if said.get("ready") is not True:
            raise self._broken("something else than that it is ready")
        self.users = "range" if said.get("users") == "range" else "one"
        self.network = said.get("network") is True

    async def _read(self) -> None:
        try:
            while True:
                self._take(*await self._frame())
        except SandboxEndedError:
            return
        finally:
            # nobody may go on waiting, whatever ended this
            self._finish(SandboxEndedError("the sandbox was closed."))

    async def _frame(self) -> tuple[bytes, bytes]:
        try:
            length: int = struct.unpack(">I", await self._reader.readexactly(4))[0]
            if not 0 < length <= MAX_FRAME_BYTES:
                raise self._broken(f"a frame of {length} bytes, expected 1 to {MAX_FRAME_BYTES}")
            frame = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise self._finish(SandboxEndedError("the sandbox has ended.")) from error
        return frame[:1], frame[1:]

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"D" and len(payload) >= 4:
            channel: int = struct.unpack_from(">I", payload)[0]
            request = self._requests.get(channel // 2)
            sink = None if request is None else request.sinks.get(channel)
            # a command that was cancelled may still have said something
            if request is not None and sink is not None:
                try:
                    sink(payload[4:])
                except SandboxError as error:
                    request.fail(error)
                except OSError as error:
                    request.fail(SandboxError(f"what came could not be kept: {error.strerror}."))
        elif kind == b"J":
            message = self._object(payload)
            number = message.get("id")
            request = self._requests.get(number) if isinstance(number, int) else None
            if request is not None and not request.answer.done():
                self._settle(request.answer, message)
        else:
            raise self._broken(f"a frame of the unknown kind {kind!r}")

    def _settle(self, answer: asyncio.Future[dict[str, Any]], message: dict[str, Any]) -> None:
        error = message.get("error")
        if error is None:
            answer.set_result(message)
        elif isinstance(error, dict):
            answer.set_exception(SandboxError(str(error.get("message"))[:4096], str(error.get("kind"))[:16]))
        else:
            raise self._broken(f"the error {error!r:.200}")

    def _object(self, payload: bytes) -> dict[str, Any]:
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            raise self._broken("a frame that is no JSON") from None
        if not isinstance(message, dict):
            raise self._broken("a frame that is no JSON object")
        return message

    def _broken(self, what: str) -> SandboxEndedError:
        return self._finish(SandboxEndedError(f"the sandbox has sent {what}; it was given up."))

    def _finish(self, error: SandboxEndedError) -> SandboxEndedError:
        """Let everything that waits fail with an error, the first one there is."""
        if self._end is None:
            self._end = error
            for request in self._requests.values():
                if not request.answer.done():
                    request.answer.set_exception(error)
            self._writer.close()
        return self._end
