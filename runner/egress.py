"""What leaves a worker that has a network of its own: its connections arrive here and are carried on, or refused.

Comes in: listening sockets that were made in the worker's network, each with what is to become of its connections.
Goes out: by default, the same bytes over a connection to the endpoint that was meant, which this process looks up and
makes. Nothing of the runner's is inside. A handler gets each connection as a socket, so something that understands
what is said on it can take the relay's place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import struct
import time
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from runner.errors import RunnerError
from runner.limits import (
    EGRESS_CONNECT_S,
    EGRESS_CONNECTIONS,
    EGRESS_CONNECTIONS_PER_S,
    EGRESS_FAILURES,
    KIB,
)
from runner.sandbox.endpoints import Endpoint

Handler = Callable[[socket.socket], Awaitable[None]]
"""Has one connection, a socket that does not block, until it returns; the socket is closed then, if it is not yet."""

READ_BYTES: Final = 128 * KIB
"""One read of a connection."""

ACCEPT_BATCH: Final = 64
"""Connections taken in one turn of the loop, so that a flood of them leaves room for everything else."""

ACCEPT_RETRY_S: Final = 0.2
"""Between two tries to take a connection for which this process had no descriptor left, or that came too soon."""

STAGGER_S: Final = 0.25
"""How long one address of a host has before the next one is tried beside it, as RFC 8305 has it."""

RESOLVED_S: Final = 1.0
"""How long a host's addresses are used again: many connections begin at once, and each look-up takes a thread."""

Address = tuple[int, tuple[Any, ...]]
"""Family, and what a socket of it connects to."""


@dataclass(slots=True)
class Count:
    """What became of the connections to one endpoint.

    Args:
        connections: How many were made.
        failed: How many could not be.
        reason: Why the last of those could not.
    """

    connections: int = 0
    failed: int = 0
    reason: str = ""


class Traffic:
    """Counts the connections of all workers of one environment, and bounds how many there are at once.

    Args:
        on_failure: Told when connections to an endpoint fail for a reason that was not told before.
        most: Connections at once; `None` takes what this process has descriptors for.
    """

    def __init__(self, on_failure: Callable[[Endpoint, str], None], most: int | None = None) -> None:
        self.counts: dict[Endpoint, Count] = {}
        self._on_failure = on_failure
        self._most = _room() if most is None else most
        self._open = 0
        self._told: set[tuple[Endpoint, str]] = set()

    def enter(self, endpoint: Endpoint) -> bool:
        """Count a connection in, unless there are too many."""
        if self._open >= self._most:
            self.fail(endpoint, f"there are {self._most} connections already")
            return False
        self._open += 1
        return True

    def leave(self) -> None:
        """Count a connection out."""
        self._open -= 1

    def connected(self, endpoint: Endpoint) -> None:
        """Count a connection that was made."""
        self._count(endpoint).connections += 1

    def fail(self, endpoint: Endpoint, reason: str) -> None:
        """Count a connection that could not be made."""
        count = self._count(endpoint)
        count.failed += 1
        count.reason = reason
        if (endpoint, reason) not in self._told and len(self._told) < EGRESS_FAILURES:
            self._told.add((endpoint, reason))
            self._on_failure(endpoint, reason)

    def _count(self, endpoint: Endpoint) -> Count:
        return self.counts.setdefault(endpoint, Count())


class Egress:
    """Takes one worker's connections and gives each to its handler. Belongs to the event loop that it is made in.

    Args:
        routes: Listening sockets, which are closed with it, and their handlers.
    """

    def __init__(self, routes: Iterable[tuple[socket.socket, Handler]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._routes = tuple(routes)
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._retries: set[asyncio.TimerHandle] = set()
        self._allowance = float(EGRESS_CONNECTIONS)
        self._counted_at = self._loop.time()
        for listener, handler in self._routes:
            listener.setblocking(False)
            self._listen(listener, handler)

    async def aclose(self) -> None:
        """Take no more connections, and end those there are. Safe to call twice."""
        for retry in self._retries:
            retry.cancel()
        for listener, _ in self._routes:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener.fileno())
                listener.close()
        tasks = [*self._connections]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def abandon(self) -> None:
        """Close all sockets without an event loop, when the one that this belongs to is closed."""
        for task in self._connections:
            # nobody will go on with it; what it holds is closed on its way out
            with contextlib.suppress(RuntimeError):
                cast("Coroutine[Any, Any, None]", task.get_coro()).close()
        for held in (*(listener for listener, _ in self._routes), *self._connections.values()):
            held.close()

    def _listen(self, listener: socket.socket, handler: Handler) -> None:
        self._loop.add_reader(listener.fileno(), self._accept, listener, handler)

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        now = self._loop.time()
        earned = (now - self._counted_at) * EGRESS_CONNECTIONS_PER_S
        self._allowance = min(self._allowance + earned, EGRESS_CONNECTIONS)
        self._counted_at = now
        if self._allowance < 1:
            self._pause(listener, handler)
            return
        for _ in range(min(ACCEPT_BATCH, int(self._allowance))):
            try:
                accepted, _peer = listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError:
                # most likely there is no descriptor left; asking again at once would keep the loop busy
                self._pause(listener, handler)
                return
            self._allowance -= 1
            accepted.setblocking(False)
            task = self._loop.create_task(_handle(handler, accepted), name="benchmax-egress")
            self._connections[task] = accepted
            task.add_done_callback(self._done)

    def _pause(self, listener: socket.socket, handler: Handler) -> None:
        self._loop.remove_reader(listener.fileno())
        self._retries = {retry for retry in self._retries if retry.when() > self._loop.time()}
        self._retries.add(self._loop.call_later(ACCEPT_RETRY_S, self._listen, listener, handler))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a worker's connection could not be handled", "exception": error}
            self._loop.call_exception_handler(context)


class Relay:
    """The handler that carries connections on to an endpoint, byte by byte.

    Args:
        endpoint: Where they lead.
        traffic: Counts them.
    """

    def __init__(self, endpoint: Endpoint, traffic: Traffic) -> None:
        self._endpoint = endpoint
        self._traffic = traffic
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._look_up = asyncio.Lock()
        self._addresses: list[Address] = []
        self._fresh_until = 0.0

    async def __call__(self, accepted: socket.socket) -> None:
        """Connect, and copy both ways until both have ended."""
        if not self._traffic.enter(self._endpoint):
            reset(accepted)
            return
        try:
            with await self._connect() as upstream:
                self._traffic.connected(self._endpoint)
                await Copying(accepted, upstream, self._buffer).run()
        except _UnreachableError as error:
            self._traffic.fail(self._endpoint, str(error))
            reset(accepted)
        finally:
            self._traffic.leave()

    async def _connect(self) -> socket.socket:
        try:
            async with asyncio.timeout(EGRESS_CONNECT_S):
                return await _connect_first(await self._resolve())
        except TimeoutError:
            raise _UnreachableError(f"no answer within {EGRESS_CONNECT_S:g} s") from None
        except socket.gaierror as error:
            raise _UnreachableError(error.strerror or "its address cannot be looked up") from error
        except OSError as error:
            raise _UnreachableError(os.strerror(error.errno or 0)) from error

    async def _resolve(self) -> list[Address]:
        # one at a time: whoever waits takes what the one before has found
        async with self._look_up:
            if not self._addresses or time.monotonic() >= self._fresh_until:
                host, port = self._endpoint.host, self._endpoint.port
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._addresses = [(family, address) for family, _, _, _, address in found]
                self._fresh_until = time.monotonic() + RESOLVED_S
            return self._addresses


class Copying:
    """Two connected sockets, each of which is sent what comes from the other.

    Args:
        one, other: Sockets that do not block.
        buffer: What is read goes through it; others may use it too, in the same loop.
    """

    def __init__(self, one: socket.socket, other: socket.socket, buffer: memoryview) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = (one, other)
        self._buffer = buffer
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._ended = 0

    async def run(self) -> None:
        """Copy until both have said that nothing more comes; what breaks one of them resets the other."""
        one, other = self._ends
        for end in self._ends:
            # whoever sent it has waited as long as it wanted already
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._loop.add_reader(one.fileno(), self._copy, one, other)
            self._loop.add_reader(other.fileno(), self._copy, other, one)
            await self._over
        finally:
            for end in self._ends:
                # in a loop that is closed there is nothing left to be taken back
                if end.fileno() >= 0 and not self._loop.is_closed():
                    self._loop.remove_reader(end.fileno())
                    self._loop.remove_writer(end.fileno())

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            count = source.recv_into(self._buffer)
            if count == 0:
                self._loop.remove_reader(source.fileno())
                self._end(sink)
                return
            sent = _send(sink, self._buffer[:count])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._break()
            return
        if sent < count:
            # nothing more is read before this is gone, so that who sends too fast is made to wait
            self._loop.remove_reader(source.fileno())
            rest = memoryview(bytes(self._buffer[sent:count]))
            self._loop.add_writer(sink.fileno(), self._send_rest, source, sink, rest)

    def _send_rest(self, source: socket.socket, sink: socket.socket, rest: memoryview) -> None:
        try:
            sent = _send(sink, rest)
        except OSError:
            self._break()
            return
        if sent < len(rest):
            self._loop.add_writer(sink.fileno(), self._send_rest, source, sink, rest[sent:])
            return
        self._loop.remove_writer(sink.fileno())
        self._loop.add_reader(source.fileno(), self._copy, source, sink)

    def _end(self, sink: socket.socket) -> None:
        # the other way may go on for long: an answer comes after its request has ended
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._break()
            return
        self._ended += 1
        if self._ended == len(self._ends) and not self._over.done():
            self._over.set_result(None)

    def _break(self) -> None:
        for end in self._ends:
            self._loop.remove_reader(end.fileno())
            self._loop.remove_writer(end.fileno())
            reset(end)
        if not self._over.done():
            self._over.set_result(None)


class _UnreachableError(Exception):
    """An endpoint to which no connection can be made; the text says why."""


def relays(endpoints: Iterable[Endpoint], traffic: Traffic) -> Mapping[Endpoint, Handler]:
    """Make the default handlers of endpoints."""
    return {endpoint: Relay(endpoint, traffic) for endpoint in endpoints}


def take_over(channel: socket.socket, count: int) -> list[socket.socket]:
    """Receive the sockets that listen in a process's network, in order; they were sent before its program began.

    Raises:
        RunnerError: there are not as many.
    """
    if not count:
        return []
    received = array("i")
    # not by `socket.recv_fds`, which forgets its flags
    flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
    with contextlib.suppress(BlockingIOError):
        for level, kind, data in channel.recvmsg(1, socket.CMSG_SPACE(count * received.itemsize), flags)[1]:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
    taken = [socket.socket(fileno=number) for number in received]
    if len(taken) != count:
        for listener in taken:
            listener.close()
        raise RunnerError(
            f"the sandbox's network: of {count} sockets {len(taken)} could be taken over.",
            hint="This process may have too few descriptors; raise `ulimit -n`.",
        )
    return taken


def reset(connection: socket.socket) -> None:
    """Close a connection in such a way that the other end learns that it broke."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def _handle(handler: Handler, accepted: socket.socket) -> None:
    await handler(accepted)


def _send(sink: socket.socket, data: memoryview) -> int:
    try:
        return sink.send(data)
    except (BlockingIOError, InterruptedError):
        return 0


async def _attempt(address: Address) -> socket.socket:
    family, place = address
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        # a machine that is gone without a word is noticed in the end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect_first(addresses: Sequence[Address]) -> socket.socket:
    """Connect to whichever address answers first; each has a head start before the next."""
    if len(addresses) == 1:
        return await _attempt(addresses[0])
    attempts: list[asyncio.Task[socket.socket]] = []
    waiting = iter(addresses)
    try:
        while True:
            if (address := next(waiting, None)) is not None:
                attempts.append(asyncio.ensure_future(_attempt(address)))
            under_way = [attempt for attempt in attempts if not attempt.done()]
            if under_way:
                more = len(attempts) < len(addresses)
                await asyncio.wait(under_way, timeout=STAGGER_S if more else None, return_when=asyncio.FIRST_COMPLETED)
            made = [attempt for attempt in attempts if attempt.done() and attempt.exception() is None]
            if made:
                return attempts.pop(attempts.index(made[0])).result()
            if len(attempts) == len(addresses) and all(attempt.done() for attempt in attempts):
                # the address that comes first is the one that is meant
                return attempts[0].result()
    finally:
        for attempt in attempts:
            attempt.cancel()
        for made_too in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(made_too, socket.socket):
                made_too.close()


def _room() -> int:
    """How many connections may take half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(EGRESS_CONNECTIONS, soft // 4) if soft != resource.RLIM_INFINITY else EGRESS_CONNECTIONS
