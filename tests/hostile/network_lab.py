"""Programs that try to reach what they may not, in each network, started by a caller that is root or an ordinary user.

`tried` is for tests. Run as a program, it is the caller. The machine that it is on is a network namespace of its own,
whose loopback device has the addresses of everything that is attacked; nothing of the real network is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast, get_args

from runner.egress import Egress, Traffic, relays, take_over
from runner.process import Process
from runner.sandbox.bubblewrap import LISTENERS_FD
from runner.sandbox.closed import closed_folders
from runner.sandbox.endpoints import listeners, read_endpoint
from runner.sandbox.fitting import fit
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import look
from runner.sandbox.plan import Step
from runner.sandbox.probe import network_blocker
from runner.sandbox.view import interpreter
from tests.confined import BASE, ORDINARY, Caller
from tests.conftest import require

Column = Literal["off", "open", "model-only", "none"]
"""Without a sandbox; and in one, with each network."""

ROOT: Final = Path(__file__).parents[2]
LAUNCHER: Final = ROOT / "runner" / "sandbox" / "launcher.py"
PATIENCE_S: Final = 60.0

DECLARED: Final = "203.0.113.9"
OTHER: Final = "203.0.113.7"
OTHER_V6: Final = "2001:db8::7"
METADATA: Final = "169.254.169.254"
RESOLVER: Final = "127.0.0.53"
PORT: Final = 7000
"""The declared one of `DECLARED`; the next one is open as well. At all others it is the only one."""

ABSTRACT: Final = "\0benchmax-network-victim"
ANSWER: Final = b"reached"

CALLERS: Final = get_args(Caller)

SETTING: Final = f"""
import errno, fcntl, json, os, socket, struct, sys
DECLARED, OTHER, OTHER_V6, METADATA, RESOLVER = {DECLARED!r}, {OTHER!r}, {OTHER_V6!r}, {METADATA!r}, {RESOLVER!r}
PORT, ABSTRACT = {PORT}, {ABSTRACT!r}
socket.setdefaulttimeout(20)

def connect(place, family=socket.AF_INET):
    with socket.socket(family) as connection:
        connection.connect(place)
        assert connection.recv(100) == {ANSWER!r}

def ask(place):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(place)
        connection.send(b"where is secret.attacker.example?")
        assert connection.recv(100) == {ANSWER!r}

def tell_kernel(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as link:
        link.sendto(struct.pack("=IHHII", 16 + len(body), kind, 0x405, 1, 0) + body, (0, 0))
        number = -struct.unpack_from("=i", link.recv(4096), 16)[0]
    if number:
        raise OSError(number, "")

def attempt(attack):
    try:
        attack()
    except OSError as error:
        name = type(error).__name__ if error.errno is None or error.errno < 0 else errno.errorcode[error.errno]
        return f"cannot {{name}}"
    return "can"
"""


def tried(caller: Caller, attacks: Mapping[str, str]) -> Mapping[str, Mapping[Column, str]]:
    """Have programs of the base interpreter try attacks; return what came of each in each network.

    Args:
        caller: Who starts them.
        attacks: By name, an expression or a lambda's body that raises `OSError` where it does not work.
    """
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    blocker = network_blocker()
    require(blocker is None, f"a network of its own ({blocker})")
    own = os.geteuid() != 0
    with tempfile.TemporaryDirectory(prefix="benchmax-network-") as outer:
        Path(outer).chmod(0o777)
        addresses = [DECLARED, OTHER, OTHER_V6, METADATA]
        steps: list[Step] = [
            {"do": "network", "user_namespace": own, "addresses": addresses, "listeners": [], "descriptor": None}
        ]
        if own:
            steps.append({"do": "drop-capabilities"})
        elif caller == "ordinary":
            needed = [sys.prefix, *interpreter(BASE), str(ROOT), outer]
            steps.append({"do": "mounts"})
            for folder, paths in closed_folders(needed, ORDINARY).items():
                shown = [[path, path == outer] for path in paths if Path(path).is_dir()]
                steps.append({"do": "show", "folder": folder, "paths": shown})
            steps.append({"do": "become", "uid": ORDINARY})
        config = {
            "steps": steps,
            "argv": [sys.executable, "-B", "-m", "tests.hostile.network_lab"],
            "env": {"PATH": "/usr/bin:/bin", "TMPDIR": outer},
            "cwd": str(ROOT),
            "umask": 0o077,
        }
        with tempfile.TemporaryFile() as source:
            source.write(json.dumps(config).encode())
            source.seek(0)
            done = subprocess.run(
                [BASE, "-I", "-S", str(LAUNCHER), str(source.fileno())],
                input=json.dumps({"attacks": dict(attacks), "folder": outer}).encode(),
                pass_fds=[source.fileno()],
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[Column, dict[str, str]] = json.loads(done.stdout)
    return {name: {column: said[name] for column, said in found.items()} for name in attacks}


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(ANSWER, addr)


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER)
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


async def _run(column: Column, attacks: Mapping[str, str], folder: Path) -> dict[str, str]:
    outer = folder / column
    private = outer / "private"
    for inner in ("home", "tmp", "work"):
        (private / inner).mkdir(parents=True)
    outer.chmod(0o711)
    endpoints = (read_endpoint(f"{DECLARED}:{PORT}"),) if column == "model-only" else ()
    level, network = ("off", "open") if column == "off" else ("namespaces", column)
    policy = fit(
        choose_policy(level, network, endpoints=endpoints), look(), private=private, readable=interpreter(BASE)
    )
    parts = [f"    {name!r}: attempt(lambda: {attack})," for name, attack in attacks.items()]
    code = "\n".join([SETTING, "print(json.dumps({", *parts, "}))"])
    output, errors = bytearray(), bytearray()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await Process.start(
            [BASE, "-I", "-c", code],
            env={"PATH": "/usr/bin:/bin", "HOME": f"{private}/home", "TMPDIR": f"{private}/tmp"},
            cwd=private / "work",
            policy=policy,
            descriptors={LISTENERS_FD: theirs.fileno()} if endpoints else {},
            stdout=output.extend,
            stderr=errors.extend,
            remove=outer,
        )
        taken = take_over(ours, len(endpoints))
    handlers = relays(endpoints, Traffic(lambda *told: errors.extend(str(told).encode())))
    places = zip(taken, listeners(endpoints), strict=True)
    egress = Egress((listener, handlers[place.endpoint]) for listener, place in places)
    try:
        how = await process.wait()
    finally:
        await egress.aclose()
    assert how.ok, (str(how), errors.decode())
    result: dict[str, str] = json.loads(output)
    return result


async def _main() -> dict[Column, dict[str, str]]:
    order = json.load(sys.stdin)
    loop = asyncio.get_running_loop()
    places = [(DECLARED, PORT), (DECLARED, PORT + 1)]
    places += [(host, PORT) for host in (OTHER, OTHER_V6, METADATA, "127.0.0.1", "::1")]
    async with contextlib.AsyncExitStack() as stack:
        for place in places:
            await stack.enter_async_context(await asyncio.start_server(_answer, *place))
        await stack.enter_async_context(await asyncio.start_unix_server(_answer, ABSTRACT))
        for host in (OTHER, RESOLVER):
            transport, _ = await loop.create_datagram_endpoint(_Datagrams, (host, PORT))
            stack.callback(transport.close)
        columns: tuple[Column, ...] = get_args(Column)
        found = await asyncio.gather(*(_run(column, order["attacks"], Path(order["folder"])) for column in columns))
    return dict(zip(columns, found, strict=True))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main())))
