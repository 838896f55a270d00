"""The worker's end of the auth channel: usable from anywhere at any time, and clean when the caller is gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.errors import CredentialSourceError
from runner.frames import FrameParser
from runner.protocol import (
    AuthToWorker,
    HeaderRequest,
    Headers,
    HeadersRefused,
    Inspect,
    RemoteFailure,
    auth_from_worker_decoder,
    encode,
)
from runner.worker.headers import EXIT_ORPHANED, REFUSALS

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, copy, os, pickle, socket, sys, threading, time, warnings
from benchmax.auth import ModelAuth, ModelRequestContext
from runner.worker.headers import CallerAuth, HeaderClient

inspections = []

def context(label):
    return ModelRequestContext("http://model", "m", label)

async def main():
    client = HeaderClient(socket.socket(fileno=int(sys.argv[1])), inspections.append)
    auth = CallerAuth(client, call=1, rollout="r")
    client.start()

    async def ask(label):
        try:
            return (await auth.headers_for_request(context(label)))["X"]
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def in_thread(work):
        found = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
        thread.start()
        return thread, found

BODY

asyncio.run(main())
"""

Answer = Callable[[HeaderRequest], AuthToWorker | None]


def answered(request: HeaderRequest) -> AuthToWorker:
    return Headers(request=request.request, headers={"X": request.rollout_id})


@contextlib.contextmanager
def program(body: str) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """Start a program with a client, and give the caller's end of its channel."""
    ours, theirs = socket.socketpair()
    code = PROGRAM.replace("BODY", textwrap.indent(textwrap.dedent(body), "    "))
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        theirs.close()
        try:
            yield ours, process
        finally:
            process.kill()
            process.communicate()


async def run(body: str, answer: Answer = answered) -> list[str]:
    """Run a program to its end, answering its requests; return what it printed."""
    with program(body) as (ours, process):
        ours.setblocking(False)
        loop, decoder, parser = asyncio.get_running_loop(), auth_from_worker_decoder(), FrameParser()

        async def serve() -> None:
            while data := await loop.sock_recv(ours, 65536):
                found = [
                    answer(message)
                    for frame in parser.feed(data)
                    if isinstance(message := decoder.decode(frame), HeaderRequest)
                ]
                await loop.sock_sendall(ours, b"".join(encode(message) for message in found if message is not None))

        serving = asyncio.ensure_future(serve())
        assert process.stdout is not None
        printed = await asyncio.to_thread(process.stdout.read)
        serving.cancel()
        await asyncio.wait([serving])
        return printed.splitlines()


async def test_requests_of_the_main_loop_get_their_own_answers_however_many_there_are() -> None:
    assert await run(
        """
        answers = await asyncio.gather(*(ask(f"label-{n}") for n in range(5000)))
        print(answers == [f"label-{n}" for n in range(5000)])
        print(await ask("one more"))
        """
    ) == ["True", "one more"]


async def test_threads_with_loops_of_their_own_are_answered_while_the_main_loop_is_blocked() -> None:
    assert await run(
        """
        async def many(name):
            return await asyncio.gather(*(ask(f"{name}-{n}") for n in range(500)))
        waiting = asyncio.ensure_future(ask("of the main loop"))
        await asyncio.sleep(0)
        threads = [in_thread(lambda name=name: many(name)) for name in range(4)]
        for thread, _ in threads:
            thread.join()
        print([found == [[f"{name}-{n}" for n in range(500)]] for name, (_, found) in enumerate(threads)])
        print(await waiting)
        """
    ) == [f"{[True] * 4}", "of the main loop"]


async def test_a_second_request_while_another_coroutine_blocks_the_loop_is_not_lost() -> None:
    assert await run(
        """
        async def block():
            time.sleep(0.1)
        print(await asyncio.gather(ask("first"), ask("second"), block(), ask("third")))
        """
    ) == ["['first', 'second', None, 'third']"]


async def test_a_refusal_is_raised_as_what_it_is() -> None:
    def refuse(request: HeaderRequest) -> AuthToWorker:
        failure = RemoteFailure(type=request.rollout_id, message="because")
        return HeadersRefused(request=request.request, failure=failure)

    kinds = [*REFUSALS, "SomethingElse", "os.system"]
    expected = [*REFUSALS, "HeadersRefusedError", "HeadersRefusedError"]
    body = f"for kind in {kinds}: print(await ask(kind))"
    assert await run(body, refuse) == [f"{kind}: because" for kind in expected]
    assert CredentialSourceError.__name__ in REFUSALS


async def test_a_cancelled_request_is_forgotten_and_its_late_answer_harms_nobody() -> None:
    held: list[HeaderRequest] = []

    def late(request: HeaderRequest) -> AuthToWorker | None:
        if request.rollout_id == "cancelled":
            held.append(request)
            return None
        if held:
            return answered(held.pop())
        return answered(request)

    assert await run(
        """
        task = asyncio.ensure_future(ask("cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        # answered with what was meant for the other, and with nothing else
        try:
            print(await asyncio.wait_for(ask("second"), 0.2))
        except TimeoutError:
            print("nothing")
        print(await ask("third"), client._waiting)
        """,
        late,
    ) == ["nothing", "third {}"]


async def test_being_asked_where_it_is_is_passed_on_whoever_reads() -> None:
    def inspect(request: HeaderRequest) -> AuthToWorker | None:
        return answered(request) if request.rollout_id != "inspect" else Inspect(inspection=1, call=None)

    assert await run(
        """
        asyncio.ensure_future(ask("inspect"))
        await asyncio.sleep(0)
        await ask("after it")
        print(len(inspections))
        asyncio.ensure_future(ask("inspect"))
        await asyncio.sleep(0)
        while len(inspections) < 2:
            time.sleep(0.01)
        print(len(inspections))
        """,
        inspect,
    ) == ["1", "2"]


async def test_a_forked_process_is_refused_and_takes_no_answer_away() -> None:
    assert await run(
        """
        # newer interpreters advise against forking beside threads, and bundles do it all the same
        warnings.simplefilter("ignore")
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, asyncio.run(ask("forked")).encode())
            os._exit(0)
        os.wait()
        print(os.read(read, 1000).decode())
        print(await ask("still here"))
        """
    ) == [
        "HeadersRefusedError: headers were asked for in a process that was forked from the worker.",
        "still here",
    ]


async def test_a_source_can_be_copied_with_its_request_and_never_pickled() -> None:
    assert await run(
        """
        print(copy.copy(auth) is auth, copy.deepcopy({"auth": auth})["auth"] is auth, isinstance(auth, ModelAuth))
        try:
            pickle.dumps(auth)
        except TypeError as error:
            print(error)
        print(auth)
        """
    ) == [
        "True True True",
        "a credential source of the caller's process cannot be pickled",
        "CallerAuth('request')",
    ]


@pytest.mark.parametrize("busy", ["await asyncio.sleep(60)", "time.sleep(60)"])
def test_a_worker_whose_caller_is_gone_ends_also_while_its_loop_is_blocked(busy: str) -> None:
    with program(f'asyncio.ensure_future(ask("x"))\nawait asyncio.sleep(0)\n{busy}') as (ours, process):
        assert ours.recv(10)
        ours.close()
        assert process.wait(10) == EXIT_ORPHANED


def test_a_request_that_cannot_be_sent_is_refused_in_words() -> None:
    body = """
    await ask("go on")
    print(await ask("x"), flush=True)
    os._exit(0)
    """
    with program(body) as (ours, process):
        (frame,) = FrameParser().feed(ours.recv(65536))
        # only the direction of requests is closed, so that the worker does not notice by itself
        ours.shutdown(socket.SHUT_RD)
        ours.sendall(encode(answered(auth_from_worker_decoder().decode(frame))))  # type: ignore[arg-type]  # a request
        assert process.stdout is not None
        assert process.stdout.read() == "HeadersRefusedError: the caller's process is gone.\n"
