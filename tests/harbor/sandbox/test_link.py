"""The near end of a trial sandbox, against a far end that says what a test has it say."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmax.envs.harbor import link as link_module
from benchmax.envs.harbor.kept import Kept
from benchmax.envs.harbor.link import Finished, SandboxEndedError, SandboxError, SandboxLink

READY = {"ready": True, "users": "range", "network": True, "pid": 7}


class FarEnd:
    """What a sandbox would be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frame(self) -> tuple[bytes, bytes]:
        size = struct.unpack(">I", await self.reader.readexactly(4))[0]
        body = await self.reader.readexactly(size)
        return body[:1], body[1:]

    async def request(self) -> dict[str, Any]:
        kind, payload = await self.frame()
        assert kind == b"J"
        request: dict[str, Any] = json.loads(payload)
        return request

    async def data(self, channel: int) -> bytes:
        """All data of a channel up to its end."""
        came = b""
        while True:
            kind, payload = await self.frame()
            assert (kind, payload[:4]) == (b"D", struct.pack(">I", channel))
            if len(payload) == 4:
                return came
            came += payload[4:]

    def send(self, body: bytes) -> None:
        self.writer.write(struct.pack(">I", len(body)) + body)

    def say(self, **message: object) -> None:
        self.send(b"J" + json.dumps(message).encode())

    def put(self, channel: int, data: bytes) -> None:
        self.send(b"D" + struct.pack(">I", channel) + data)


@asynccontextmanager
async def far_end() -> AsyncIterator[tuple[socket.socket, FarEnd]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=far)
    try:
        yield near, FarEnd(reader, writer)
    finally:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[SandboxLink, FarEnd]]:
    async with far_end() as (near, far):
        far.say(**READY)
        link = await SandboxLink.open(near)
        try:
            yield link, far
        finally:
            await link.aclose()


async def run(link: SandboxLink, command: str = "true", **options: Any) -> tuple[Finished, str, str]:
    stdout, stderr = Kept(100), Kept(100)
    finished = await link.run(command, stdout=stdout.add, stderr=stderr.add, **options)
    return finished, stdout.text(), stderr.text()


async def test_the_first_word_says_what_there_is() -> None:
    async with linked() as (link, _):
        assert (link.users, link.network) == ("range", True)


async def test_commands_run_side_by_side_and_each_gets_its_own_output() -> None:
    async with linked() as (link, far):
        first = asyncio.ensure_future(run(link, "one", cwd="/app", env={"A": "b"}, user="ada", timeout_s=3))
        asked = await far.request()
        second = asyncio.ensure_future(run(link, "two"))
        other = (await far.request())["id"]
        assert asked == {
            "op": "exec",
            "id": asked["id"],
            "command": "one",
            "cwd": "/app",
            "env": {"A": "b"},
            "user": "ada",
            "timeout_s": 3,
            "merge": False,
        }
        number = asked["id"]
        far.put(2 * other, b"of two")
        far.put(2 * number, b"of one")
        far.put(2 * number + 1, b"errors")
        far.say(id=number, exit=124, signal=9, timed_out=True, dropped=0)
        far.say(id=other, exit=0, signal=None, timed_out=False, dropped=0)
        assert await first == (Finished(124, 9, True), "of one", "errors")
        assert await second == (Finished(0, None, False), "of two", "")


async def test_a_command_whose_caller_is_cancelled_is_cancelled_there() -> None:
    async with linked() as (link, far):
        running = asyncio.ensure_future(run(link))
        number = (await far.request())["id"]
        running.cancel()
        asked = await far.request()
        assert (asked["op"], asked["of"]) == ("cancel", number)
        assert asked["id"] != number
        with pytest.raises(asyncio.CancelledError):
            await running
        # what still comes of it is nobody's
        far.put(2 * number, b"late")
        far.say(id=number, exit=0, signal=9, timed_out=False, dropped=0)
        looking = asyncio.ensure_future(link.type_of("/tmp"))
        far.say(id=(await far.request())["id"], type="folder")
        assert await looking == "folder"


async def test_a_file_goes_there_in_pieces_and_comes_back() -> None:
    content = bytes(range(256)) * 1000
    async with linked() as (link, far):
        putting = asyncio.ensure_future(link.put(io.BytesIO(content), "/a", kind="file", mode=0o640, owner="ada"))
        asked = await far.request()
        assert {**asked, "id": 0} == {
            "op": "put", "id": 0, "path": "/a", "mode": 0o640, "kind": "file", "owner": "ada"
        }  # fmt: skip
        assert await far.data(2 * asked["id"]) == content
        far.say(id=asked["id"], ok=True)
        await putting

        target = io.BytesIO()
        getting = asyncio.ensure_future(link.get("/a", target, kind="file"))
        asked = await far.request()
        for start in range(0, len(content), 100_000):
            far.put(2 * asked["id"], content[start : start + 100_000])
        far.say(id=asked["id"], ok=True, bytes=len(content))
        assert await getting == len(content)
        assert target.getvalue() == content


async def test_an_upload_that_fails_is_not_sent_to_its_end_and_raises() -> None:
    async with linked() as (link, far):
        putting = asyncio.ensure_future(link.put(io.BytesIO(bytes(50_000_000)), "/a", kind="file"))
        number = (await far.request())["id"]
        far.say(id=number, error={"kind": "io", "message": "the disk is full."})
        came = await far.data(2 * number)
        with pytest.raises(SandboxError, match="the disk is full") as caught:
            await putting
        assert caught.value.kind == "io"
        assert len(came) < 50_000_000


async def test_a_download_beyond_its_limit_fails_at_once_and_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_DOWNLOAD_BYTES", 10)
    async with linked() as (link, far):
        target = io.BytesIO()
        getting = asyncio.ensure_future(link.get("/a", target, kind="file"))
        number = (await far.request())["id"]
        for _ in range(3):
            far.put(2 * number, b"12345678")
        # and its end never comes
        with pytest.raises(SandboxError, match="more than 10 bytes"):
            await getting
        assert target.getvalue() == b"12345678"
        looking = asyncio.ensure_future(link.type_of("/tmp"))
        far.put(2 * number, b"12345678")
        far.say(id=(await far.request())["id"], type="file")
        assert await looking == "file"


async def test_a_download_that_cannot_be_written_fails_alone() -> None:
    class Full(io.RawIOBase):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    async with linked() as (link, far):
        getting = asyncio.ensure_future(link.get("/a", Full(), kind="file"))  # type: ignore[arg-type]
        number = (await far.request())["id"]
        far.put(2 * number, b"x")
        far.put(2 * number, b"y")
        with pytest.raises(SandboxError, match="No space left"):
            await getting
        looking = asyncio.ensure_future(link.type_of("/tmp"))
        far.say(id=(await far.request())["id"], type=None)
        assert await looking is None


async def test_a_request_that_fits_no_frame_is_refused_before_it_is_sent() -> None:
    async with linked() as (link, far):
        with pytest.raises(SandboxError, match="Put what is long into a file"):
            await run(link, "x" * 2_000_000)
        looking = asyncio.ensure_future(link.type_of("/tmp"))
        assert (await far.request())["op"] == "stat"
        looking.cancel()


def header(size: int) -> Callable[[FarEnd, int], None]:
    return lambda far, _: far.writer.write(struct.pack(">I", size))


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        (lambda far, _: far.writer.write_eof(), "has ended"),
        (header(0), "a frame of 0 bytes"),
        (header(2**31), "a frame of 2147483648 bytes"),
        (lambda far, _: far.send(b"X"), "unknown kind"),
        (lambda far, _: far.send(b"D12"), "unknown kind"),
        (lambda far, _: far.send(b"J{"), "no JSON"),
        (lambda far, _: far.send(b"J" + b"[" * 500_000), "no JSON"),
        (lambda far, _: far.send(b"J[]"), "no JSON object"),
        (lambda far, number: far.say(id=number), "without an exit code"),
        (lambda far, number: far.say(id=number, exit="soon"), "without an exit code"),
        (lambda far, number: far.say(id=number, error="because"), "the error 'because'"),
    ],
)
async def test_a_sandbox_that_ends_or_lies_fails_what_waits_and_what_comes(
    lie: Callable[[FarEnd, int], None], text: str
) -> None:
    async with linked() as (link, far):
        running = asyncio.ensure_future(run(link))
        number = (await far.request())["id"]
        lie(far, number)
        with pytest.raises(SandboxEndedError, match=text):
            await running
        with pytest.raises(SandboxEndedError):
            await link.type_of("/tmp")


@pytest.mark.parametrize(
    "greet",
    [
        lambda far: far.writer.write_eof(),
        lambda far: far.say(ready=False),
        lambda far: far.say(id=1, ok=True),
        lambda far: far.put(2, b"x"),
    ],
)
async def test_something_else_than_a_sandbox_is_not_taken_for_one(greet: Callable[[FarEnd], None]) -> None:
    async with far_end() as (near, far):
        greet(far)
        with pytest.raises(SandboxEndedError):
            await SandboxLink.open(near)


async def test_closing_fails_what_waits_ends_the_stream_and_may_be_said_twice() -> None:
    async with linked() as (link, far):
        asked: list[Awaitable[object]] = [asyncio.ensure_future(run(link)), asyncio.ensure_future(link.type_of("/"))]
        await far.request()
        await far.request()
        await link.aclose()
        await link.aclose()
        for waiting in asked:
            with pytest.raises(SandboxEndedError, match="was closed"):
                await waiting
        assert await far.reader.read() == b""


def test_of_much_output_the_beginning_and_the_end_are_kept() -> None:
    kept = Kept(20)
    for number in range(1000):
        kept.add(f"{number:03}".encode())
    assert kept.text() == "0000010020\n… 2980 bytes left out …\n6997998999"
    short = Kept(20)
    short.add(b"0123456789ab")
    assert short.text() == "0123456789ab"
