"""What leaves a worker, with real sockets: bytes are carried on both ways, failures are told, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from runner import egress
from runner.egress import Count, Egress, Handler, Relay, Traffic, relays, take_over
from runner.errors import RunnerError
from runner.limits import EGRESS_FAILURES
from runner.sandbox.endpoints import Endpoint
from tests.integration.isolation import until

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Told(list[tuple[str, str]]):
    def __call__(self, endpoint: Endpoint, reason: str) -> None:
        self.append((str(endpoint), reason))


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[tuple[str, int]]:
    """Listen as a worker's network does, and give what connects to a handler."""
    listener = socket.create_server(("127.0.0.1", 0))
    place: tuple[str, int] = listener.getsockname()
    leaving = Egress([(listener, handler)])
    try:
        yield place
    finally:
        await leaving.aclose()


@asynccontextmanager
async def serving(served: Served) -> AsyncIterator[Endpoint]:
    """Serve at an endpoint."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await served(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield Endpoint(*server.sockets[0].getsockname())
    finally:
        server.close()
        await server.wait_closed()


def an_unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    return port


async def talk(place: tuple[str, int], data: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(*place)
    try:
        writer.write(data)
        # one that was reset already says so when it is read from
        with contextlib.suppress(OSError):
            writer.write_eof()
        return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_what_is_sent_arrives_and_the_answer_comes_after_the_question_has_ended() -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # only once it knows that no more comes
        writer.write((await reader.read())[::-1])

    traffic = Traffic(Told())
    async with serving(backwards) as endpoint, listening(Relay(endpoint, traffic)) as place:
        assert await talk(place, b"abc") == b"cba"
        assert await talk(place, b"de") == b"ed"
    assert traffic.counts == {endpoint: Count(connections=2)}


async def test_an_end_that_says_no_more_can_go_on_listening() -> None:
    heard: list[bytes] = []

    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.write_eof()
        heard.append(await reader.read())

    async with serving(speak_first) as endpoint, listening(Relay(endpoint, Traffic(Told()))) as place:
        reader, writer = await asyncio.open_connection(*place)
        assert await reader.read() == b"hello"
        writer.write(b"still here")
        writer.write_eof()
        await until(lambda: bool(heard), what="what was said last")
        writer.close()
        await writer.wait_closed()
    assert heard == [b"still here"]


async def test_much_goes_through_unchanged_both_ways_at_once() -> None:
    data = os.urandom(1 << 20) * 16

    async def send(writer: asyncio.StreamWriter) -> None:
        for at in range(0, len(data), 1 << 16):
            writer.write(data[at : at + (1 << 16)])
            await writer.drain()
        writer.write_eof()

    async with serving(echo) as endpoint, listening(Relay(endpoint, Traffic(Told()))) as place:
        reader, writer = await asyncio.open_connection(*place)
        sending = asyncio.ensure_future(send(writer))
        came = hashlib.sha256()
        count = 0
        while piece := await reader.read(1 << 18):
            came.update(piece)
            count += len(piece)
        await sending
        writer.close()
        await writer.wait_closed()
    assert (count, came.digest()) == (len(data), hashlib.sha256(data).digest())


async def test_who_sends_too_fast_is_made_to_wait() -> None:
    read_on = asyncio.Event()

    async def read_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_on.wait()
        total = 0
        while data := await reader.read(1 << 16):
            total += len(data)
        writer.write(str(total).encode())

    loop = asyncio.get_running_loop()
    async with serving(read_later) as endpoint, listening(Relay(endpoint, Traffic(Told()))) as place:
        with socket.create_connection(place) as client:
            client.setblocking(False)
            sent, piece = 0, bytes(1 << 16)
            # until nothing more can be sent for a while, in which everything else has had its turn
            idle = 0
            while idle < 200:
                try:
                    sent += client.send(piece)
                    idle = 0
                except BlockingIOError:
                    idle += 1
                    await asyncio.sleep(0)
            assert sent < 1 << 26, "all of it is held somewhere"
            client.shutdown(socket.SHUT_WR)
            read_on.set()
            assert await loop.sock_recv(client, 100) == str(sent).encode()


async def test_a_connection_that_breaks_breaks_for_the_other_end_too() -> None:
    connected, gone = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        try:
            await reader.read()
        except ConnectionError as error:
            errors.append(error)
        gone.set()

    async with serving(wait) as endpoint, listening(Relay(endpoint, Traffic(Told()))) as place:
        client = socket.create_connection(place)
        await connected.wait()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await gone.wait()
    assert [type(error) for error in errors] == [ConnectionResetError]


async def test_a_connection_that_cannot_be_made_is_reset_and_each_reason_told_once() -> None:
    told = Told()
    traffic = Traffic(told)
    endpoint = Endpoint("127.0.0.1", an_unused_port())
    async with listening(Relay(endpoint, traffic)) as place:
        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await talk(place)
    assert told == [(str(endpoint), "Connection refused")]
    assert traffic.counts[endpoint] == Count(failed=3, reason="Connection refused")


async def test_a_name_that_nobody_knows_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = Told()
    async with listening(Relay(Endpoint("gone.example", 443), Traffic(told))) as place:
        with pytest.raises(ConnectionResetError):
            await talk(place)
    assert told == [("gone.example:443", "Name or service not known")]


async def test_a_place_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "EGRESS_CONNECT_S", 0.05)
    told = Told()
    # a backlog that is full takes no connection, and refuses none
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        endpoint = Endpoint(*full.getsockname())
        async with listening(Relay(endpoint, Traffic(told))) as place:
            with pytest.raises(ConnectionResetError):
                await talk(place)
    assert told == [(str(endpoint), "no answer within 0.05 s")]


async def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(echo) as endpoint:
        here = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (endpoint.host, endpoint.port))
        dead = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (endpoint.host, an_unused_port()))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [dead, here, dead])
        async with listening(Relay(Endpoint("many.example", 80), Traffic(Told()))) as place:
            assert await talk(place, b"x") == b"x"


async def test_a_host_is_looked_up_once_for_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[Any] = []
    async with serving(echo) as endpoint:
        here = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (endpoint.host, endpoint.port))
        real = socket.getaddrinfo

        def look_up(host: Any, *rest: Any, **options: Any) -> Any:
            if host != "busy.example":
                return real(host, *rest, **options)
            looked_up.append(host)
            return [here]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr(egress, "RESOLVED_S", 1000.0)
        async with listening(Relay(Endpoint("busy.example", 80), Traffic(Told()))) as place:
            assert await asyncio.gather(*(talk(place, b"%d" % n) for n in range(20))) == [b"%d" % n for n in range(20)]
    assert looked_up == ["busy.example"]


async def test_more_connections_than_there_may_be_are_refused_and_told() -> None:
    told = Told()
    traffic = Traffic(told, most=2)
    async with serving(echo) as endpoint, listening(Relay(endpoint, traffic)) as place:
        held = [await asyncio.open_connection(*place) for _ in range(2)]
        for number, (reader, writer) in enumerate(held):
            writer.write(b"%d" % number)
            assert await reader.read(1) == b"%d" % number
        with pytest.raises(ConnectionResetError):
            await talk(place)
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        # there is room again as soon as they are over
        await until(lambda: traffic._open == 0, what="the end of the first two")
        assert await talk(place, b"x") == b"x"
    assert told == [(str(endpoint), "there are 2 connections already")]


async def test_the_bound_leaves_half_of_the_descriptors_for_everything_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        assert Traffic(Told())._most == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_flood_of_reasons_is_counted_and_not_told() -> None:
    told = Told()
    traffic = Traffic(told)
    endpoint = Endpoint("a.example", 1)
    for number in range(1000):
        traffic.fail(endpoint, f"reason {number}")
    assert len(told) == EGRESS_FAILURES
    assert traffic.counts[endpoint] == Count(failed=1000, reason="reason 999")


async def test_connections_wait_while_this_process_has_no_descriptor_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "ACCEPT_RETRY_S", 0.01)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    took: list[bool] = []

    async def take(accepted: socket.socket) -> None:
        took.append(True)

    async with listening(take) as place:
        with socket.create_connection(place) as client:
            client.setblocking(False)
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
            filler = [os.dup(0) for _ in range(highest + 1 - len(os.listdir("/proc/self/fd")) + 1)]  # noqa: PTH208
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(filler, default=highest) + 1, hard))
            try:
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not took
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for number in filler:
                    os.close(number)
            await until(lambda: bool(took), what="the connection")


async def test_closing_ends_what_is_under_way_and_twice_is_harmless() -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await reader.read()
        ended.set()

    async with serving(wait) as endpoint:
        listener = socket.create_server(("127.0.0.1", 0))
        place = listener.getsockname()
        leaving = Egress([(listener, Relay(endpoint, Traffic(Told())))])
        with socket.create_connection(place) as client:
            client.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(client, 10) == b"x"
            await leaving.aclose()
            await leaving.aclose()
            await ended.wait()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)


async def test_a_handler_of_ones_own_takes_the_place_of_the_relay() -> None:
    async def answer(accepted: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(accepted, b"from the handler")

    async with listening(answer) as place:
        assert await talk(place) == b"from the handler"


async def test_a_handler_that_fails_is_reported_and_its_connection_closed() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def fail(accepted: socket.socket) -> None:
        raise RuntimeError("broken handler")

    async with listening(fail) as place:
        assert await talk(place) == b""
    assert [str(context["exception"]) for context in reported] == ["broken handler"]


def test_without_its_loop_all_sockets_can_still_be_closed() -> None:
    async def start(endpoint: Endpoint) -> tuple[Egress, socket.socket]:
        listener = socket.create_server(("127.0.0.1", 0))
        traffic = Traffic(Told())
        leaving = Egress([(listener, Relay(endpoint, traffic))])
        client = socket.create_connection(listener.getsockname())
        await until(lambda: endpoint in traffic.counts, what="the connection")
        return leaving, client

    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        leaving, client = loop.run_until_complete(start(Endpoint(*server.getsockname())))
        loop.close()
        leaving.abandon()
        assert client.recv(1) == b""
        client.close()
        del leaving
        gc.collect()


async def test_connections_that_come_too_soon_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "EGRESS_CONNECTIONS", 2)
    monkeypatch.setattr(egress, "EGRESS_CONNECTIONS_PER_S", 100)
    monkeypatch.setattr(egress, "ACCEPT_RETRY_S", 0.01)
    took: list[float] = []

    async def take(accepted: socket.socket) -> None:
        took.append(time.monotonic())

    async with listening(take) as place:
        assert await asyncio.gather(*(talk(place) for _ in range(6))) == [b""] * 6
    # two at once, and four that had to be earned
    assert took[-1] - took[0] >= 0.03


def test_sockets_are_taken_over_in_order_or_not_at_all() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        both = [one.fileno(), two.fileno()]
        socket.send_fds(theirs, [b"\0"], both)
        taken = take_over(ours, 2)
        assert [found.getsockname() for found in taken] == [one.getsockname(), two.getsockname()]
        assert not any(found.get_inheritable() for found in taken)
        for found in taken:
            found.close()
        socket.send_fds(theirs, [b"\0"], both)
        with pytest.raises(RunnerError, match="of 3 sockets 2 could be taken over"):
            take_over(ours, 3)
        # where nothing was sent, nobody waits
        with pytest.raises(RunnerError, match="of 1 sockets 0"):
            take_over(ours, 1)
        assert take_over(ours, 0) == []


@pytest.mark.keeps_descriptors  # uvloop keeps a pipe for signals
def test_it_works_in_another_event_loop_as_well() -> None:
    async def exchange() -> None:
        async with serving(echo) as endpoint, listening(Relay(endpoint, Traffic(Told()))) as place:
            data = os.urandom(1 << 20)
            assert await talk(place, data) == data
            assert await asyncio.gather(*(talk(place, b"%d" % n) for n in range(20))) == [b"%d" % n for n in range(20)]

    uvloop.run(exchange())


def test_every_endpoint_has_a_relay() -> None:
    places = (Endpoint("a.example", 1), Endpoint("b.example", 2))

    async def made() -> None:
        assert relays(places, Traffic(Told())).keys() == set(places)

    asyncio.run(made())
