"""The network of a trial sandbox: none, or what the worker that asks for it has, and never more."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import pytest

from runner.egress import Traffic, relays
from runner.limits import Limits
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.policy import SandboxPolicy
from runner.trials.desk import TrialDesk, TrialRefusedError
from runner.trials.policy import network_of
from runner.trials.request import TrialRequest
from tests.confined import Caller
from tests.trials.talking import Talk, opened

WANTED = TrialRequest(rollout_id="trial", network=True)
CONNECT = "python3 -c 'import socket, sys; print(socket.create_connection((sys.argv[1], {port}), 5).recv(9))' {host}"


@contextmanager
def greeting() -> Iterator[int]:
    """A server of the machine's that says one word to whoever connects, once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_greet, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _greet(server: socket.socket) -> None:
    try:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello")
    except OSError:
        return


@pytest.mark.parametrize("caller", get_args(Caller))
def test_a_trial_that_wants_none_has_its_own_loopback_and_nothing_else(caller: Caller) -> None:
    with greeting() as port, opened(caller) as talk:
        assert talk.ready["network"] is False
        assert "refused" in talk.run(CONNECT.format(host="127.0.0.1", port=port)).err
        assert talk.run(CONNECT.format(host="198.51.100.1", port=80)).exit != 0
        assert talk.run("ls /etc/resolv.conf").exit != 0
        assert talk.said("cut -d: -f1 /proc/net/dev | tail -n +3") == "lo"


@pytest.mark.parametrize("caller", get_args(Caller))
def test_without_a_worker_the_network_is_the_machines(caller: Caller) -> None:
    with greeting() as port, opened(caller, network=True) as talk:
        assert talk.ready["network"] is True
        assert talk.said(CONNECT.format(host="127.0.0.1", port=port)) == "b'hello'"


async def test_a_workers_endpoints_are_reached_by_the_same_way_and_no_others() -> None:
    failures: list[str] = []
    traffic = Traffic(lambda endpoint, why: failures.append(f"{endpoint} {why}"))
    with greeting() as port, greeting() as other:
        named = Endpoint("localhost", port)
        worker = SandboxPolicy(level="namespaces", network="model-only", endpoints=(named,))
        desk = TrialDesk(Limits(), worker, relays([named], traffic))

        def use(stream: socket.socket) -> tuple[str, str]:
            talk = Talk(stream)
            try:
                return (
                    talk.said(CONNECT.format(host="localhost", port=port)),
                    talk.run(CONNECT.format(host="localhost", port=other)).err,
                )
            finally:
                talk.close()

        try:
            said, refused = await asyncio.to_thread(use, await desk.open(WANTED))
        finally:
            await desk.aclose()
    assert said == "b'hello'"
    assert "refused" in refused
    assert traffic.counts[named].connections == 1
    assert not failures


async def test_a_network_that_the_worker_does_not_have_is_refused() -> None:
    desk = TrialDesk(Limits(), SandboxPolicy(level="namespaces", network="none"))
    with pytest.raises(TrialRefusedError, match="--network open"):
        await desk.open(WANTED)
    await desk.aclose()


def test_a_sandbox_never_has_more_than_its_worker() -> None:
    quiet = TrialRequest(rollout_id="trial")
    assert [network_of(quiet, mode) for mode in ("open", "model-only", "none")] == ["none"] * 3
    assert [network_of(WANTED, mode) for mode in ("open", "model-only")] == ["open", "model-only"]
