"""The launcher's step that makes a network, and what is said where it cannot be made."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from runner.egress import take_over
from runner.errors import SandboxUnavailableError
from runner.sandbox import levels, probe
from runner.sandbox.blockers import Blocker
from runner.sandbox.endpoints import read_endpoint
from runner.sandbox.launcher import EXIT_FAILED
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import Plan
from runner.sandbox.probe import launch
from tests.conftest import require

pytestmark = pytest.mark.integration

SHELL = ("/bin/sh", "-c")


def made(
    *, addresses: tuple[str, ...] = (), places: tuple[tuple[str, int], ...] = (), command: str = "true"
) -> tuple[int, str, list[socket.socket]]:
    """Run a command in a network; return its exit code, what it said, and the sockets that listen."""
    blocker = probe.network_blocker()
    require(blocker is None, f"a network of its own ({blocker})")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            step = {
                "do": "network",
                "user_namespace": not this_machine().may_make_networks,
                "addresses": addresses,
                "listeners": places,
                "descriptor": theirs.fileno(),
            }
            plan = Plan(steps=(step,), argv=(*SHELL, command))
            done = launch(plan, cwd="/", env={}, timeout_s=60, descriptors=[theirs.fileno()])
        taken = take_over(ours, len(places)) if done.returncode == 0 else []
    return done.returncode, (done.stdout + done.stderr).decode(), taken


def test_there_is_a_loopback_device_that_is_up_and_nothing_else() -> None:
    code, said, _ = made(command="while read name rest; do echo $name; done < /proc/net/dev; cat /proc/net/route")
    assert code == 0
    assert [line.partition(":")[0] for line in said.splitlines() if ":" in line] == ["lo"]
    assert len([line for line in said.splitlines() if line.startswith("Iface")]) == 1


def test_sockets_that_listen_there_arrive_here_in_order() -> None:
    places = (("127.64.0.1", 443), ("10.0.0.7", 80), ("::1", 1), ("2001:db8::5", 65535))
    code, _, taken = made(addresses=("10.0.0.7", "2001:db8::5"), places=places)
    assert code == 0
    found = []
    for listener in taken:
        with listener:
            assert not listener.get_inheritable()
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            found.append(listener.getsockname()[:2])
    assert tuple(found) == places


def test_the_command_has_none_of_these_sockets() -> None:
    code, said, taken = made(places=(("127.0.0.1", 80),), command="ls -l /proc/self/fd")
    for listener in taken:
        listener.close()
    assert code == 0
    assert "socket:" not in said


@pytest.mark.parametrize(
    ("addresses", "places", "text"),
    [
        ((), (("10.0.0.7", 80),), "(10.0.0.7 port 80): Cannot assign requested address"),
        ((), (("127.0.0.1", 80), ("127.0.0.1", 80)), "(127.0.0.1 port 80): Address already in use"),
        (("10.0.0.7", "10.0.0.7"), (), "(10.0.0.7): File exists"),
    ],
)
def test_what_cannot_be_listened_on_ends_the_launch_and_is_named(
    addresses: tuple[str, ...], places: tuple[tuple[str, int], ...], text: str
) -> None:
    code, said, _ = made(addresses=addresses, places=places)
    assert (code, said.strip()) == (EXIT_FAILED, f"launcher: cannot make a network namespace {text}")


def test_a_network_brings_its_level_with_it() -> None:
    require(probe.network_blocker() is None, "a network of its own")
    endpoint = read_endpoint("api.example:443")
    for sandbox in ("auto", "namespaces"):
        policy = choose_policy(sandbox, "model-only", endpoints=(endpoint,))
        assert (policy.level, policy.network, policy.endpoints) == ("namespaces", "model-only", (endpoint,))


@pytest.mark.parametrize("network", ["model-only", "none"])
def test_where_its_level_does_not_work_it_is_refused_with_what_would_help(network: str) -> None:
    machine = replace(this_machine(), bubblewrap=None)
    with pytest.raises(SandboxUnavailableError) as caught:
        choose_policy("auto", network, machine=machine)
    assert str(caught.value).startswith(
        f"network {network}: it needs the sandbox level namespaces, but the program bwrap is not installed."
    )
    assert "Install it" in str(caught.value)


@pytest.mark.parametrize("sandbox", ["auto", "namespaces"])
def test_where_its_level_works_and_it_does_not_that_is_said(sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = Blocker("AppArmor restricts user namespaces", "As root: sysctl x=0")
    monkeypatch.setattr(levels, "network_blocker", lambda machine: blocker)
    with pytest.raises(SandboxUnavailableError, match=r"but AppArmor restricts .*\. As root: sysctl x=0\."):
        choose_policy(sandbox, "none")
