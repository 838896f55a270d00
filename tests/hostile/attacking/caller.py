"""The caller, as a program: owns what is attacked, starts the program that attacks, and looks at what came of it.

Its arguments are a level, or `bare` for a program that no runner has confined, the network that the program gets, and a
folder of its own. It prints, as JSON, what became of each attack. That the program says that it could is not enough
where the traces it should have left can be looked for: an attack with a function `seen` did what that finds, whatever
it said.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import json
import os
import pty
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from runner.process import Process
from runner.sandbox.fitting import fit
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import this_machine
from runner.sandbox.view import interpreter
from tests.hostile import attacks
from tests.hostile.attacking import inside
from tests.hostile.attacking.kernel import call, checked, libc, number
from tests.hostile.attacking.target import SECRET, Target

BARE: Final = "bare"
BASE: Final = os.path.realpath(sys.executable)
SOURCES: Final = Path(__file__).parents[1]
BOOT: Final = "import sys; sys.path.append(sys.argv[1]); from tests.hostile.attacking.inside import main; main()"
TERMINAL: Final = 21
PATIENCE_S: Final = 60.0
IPC_CREAT, IPC_RMID, SHM_RDWR = 0o1000, 0, 0

ANY_SIGNAL: Final = range(signal.SIGRTMIN + 1, signal.SIGRTMIN + 10)

KEPT: Final = ctypes.create_string_buffer(SECRET.encode())
SCRATCH: Final = ctypes.create_string_buffer(16)


@contextmanager
def victims(outer: Path) -> Iterator[Target]:
    """Make everything that is attacked."""
    _files(outer)
    name = f"benchmax-attack-{os.getpid()}"
    key = 0x62000000 + os.getpid()
    with contextlib.ExitStack() as stack:
        hidden = os.memfd_create("hidden")
        stack.callback(os.close, hidden)
        os.write(hidden, SECRET.encode())
        # as a program of the caller's may have done that was not careful
        os.set_inheritable(hidden, True)
        Path("/dev/shm", name).write_text(SECRET)
        stack.callback(_without, Path("/dev/shm", name))
        stack.callback(_without, Path("/dev/shm", f"{name}-left"))
        _segment(stack, key)
        _message_queues(stack, name, key)
        servers = [
            stack.enter_context(socket.socket(*kind))
            for kind in (
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
                (socket.AF_INET, socket.SOCK_STREAM),
            )
        ]
        addresses: tuple[Any, ...] = (
            f"\0{name}",
            str(outer / "home" / "agent"),
            str(outer / "home" / "log"),
            ("127.0.0.1", 0),
        )
        for server, address in zip(servers, addresses, strict=True):
            server.bind(address)
            if server.type == socket.SOCK_STREAM:
                server.listen(64)
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        stand_in = stack.enter_context(subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        yield Target(
            caller=os.getpid(),
            supervisor=stand_in.pid,
            secret_address=ctypes.addressof(KEPT),
            scratch_address=ctypes.addressof(SCRATCH),
            descriptor=hidden,
            outer=str(outer),
            private=str(outer / "private"),
            name=name,
            terminal=slave,
            port=servers[-1].getsockname()[1],
            priority=os.getpriority(os.PRIO_PROCESS, 0),
            key=key,
        )
        stand_in.kill()


def _files(outer: Path) -> None:
    texts = {
        "home/.ssh/id_ed25519": SECRET,
        "home/.aws/credentials": f"[default]\naws_secret_access_key = {SECRET}\n",
        "home/.config/gcloud/application_default_credentials.json": json.dumps({"refresh_token": SECRET}),
        "home/.netrc": f"machine index.example password {SECRET}\n",
        "home/notes": SECRET,
        "home/to-delete": SECRET,
        "home/treasure/coin": SECRET,
        "data/rows.jsonl": json.dumps({"question": "?", "answer": SECRET}),
        "cache/venvs/other/lib/site-packages/other.py": f'KEY = "{SECRET}"\n',
        "cache/venvs/other/manifest.json": json.dumps({"whole": True, "note": SECRET}),
        "venv/lib/site-packages/package.py": "VALUE = 1\n",
        "neighbour/answer": SECRET,
    }
    for name, text in texts.items():
        path = outer / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (outer / "home" / ".ssh" / "id_ed25519").chmod(0o600)
    (outer / "home" / "link").symlink_to(outer / "home" / "notes")
    with contextlib.suppress(OSError):
        os.setxattr(outer / "home" / "notes", "user.origin", SECRET.encode())
    shutil.copy(BASE, outer / "venv" / "python")
    for package in ("attacks", "attacking"):
        shutil.copytree(
            SOURCES / package,
            outer / "code" / "tests" / "hostile" / package,
            ignore=shutil.ignore_patterns("__pycache__", "caller.py"),
        )


def _without(path: Path) -> None:
    path.unlink(missing_ok=True)


def _segment(stack: contextlib.ExitStack, key: int) -> None:
    segment = call("shmget", key, number(4096), IPC_CREAT | 0o600)
    stack.callback(libc.shmctl, segment, IPC_RMID, None)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, SHM_RDWR)
    ctypes.memmove(address, SECRET.encode(), len(SECRET))
    libc.shmdt(ctypes.c_void_p(address))


def _message_queues(stack: contextlib.ExitStack, name: str, key: int) -> None:
    queue = call("msgget", key, IPC_CREAT | 0o600)
    stack.callback(libc.msgctl, queue, IPC_RMID, None)
    message = struct.pack("@l", 1) + SECRET.encode()
    for _ in range(4):
        checked(libc.msgsnd(queue, message, ctypes.c_size_t(len(SECRET)), 0))
    # as many as one that reads takes away, at each level
    attributes = struct.pack("@8l", 0, 4, 256, 0, 0, 0, 0, 0)
    posix = call("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, attributes)
    stack.callback(libc.mq_unlink, f"/{name}".encode())
    stack.callback(os.close, posix)
    for _ in range(4):
        checked(libc.mq_send(posix, SECRET.encode(), ctypes.c_size_t(len(SECRET)), 0))


def _prepare(outer: Path) -> Path:
    private = outer / "private"
    for name in ("home", "tmp", "work"):
        (private / name).mkdir(parents=True)
    return private


def _environment(private: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": f"{private}/home", "TMPDIR": f"{private}/tmp"}


def _command(target: Target) -> list[str]:
    return [BASE, "-I", "-S", "-B", "-c", BOOT, str(target.code)]


def _orders(names: Sequence[str], target: Target, supervisor: int) -> bytes:
    facts = {field: getattr(target, field) for field in Target.__slots__}
    return json.dumps(
        {"attacks": list(names), "target": {**facts, "supervisor": supervisor, "terminal": TERMINAL}}
    ).encode()


def run_bare(names: Sequence[str], target: Target) -> bytes:
    """Start the program as one that nobody confines; it inherits what the caller is careless with."""
    _prepare(Path(target.outer))
    reading, writing = os.pipe()
    output = os.memfd_create("output")
    os.write(writing, _orders(names, target, target.supervisor))
    os.close(writing)
    os.dup2(reading, inside.ORDERS)
    os.close(reading)
    os.dup2(target.terminal, TERMINAL)
    try:
        with subprocess.Popen(
            _command(target), cwd=target.work, stdin=subprocess.DEVNULL, stdout=output, close_fds=False
        ) as program:
            program.wait(PATIENCE_S)
        return os.pread(output, 1 << 20, 0)
    finally:
        for descriptor in (inside.ORDERS, TERMINAL, output):
            os.close(descriptor)


async def run_confined(level: str, network: str, names: Sequence[str], target: Target) -> bytes:
    """Start the program at a level, as a worker is started."""
    private = _prepare(Path(target.outer))
    policy = fit(
        choose_policy(level, network),
        this_machine(),
        private=private,
        readable=[*interpreter(BASE), str(target.venv), str(target.code)],
    )
    reading, writing = os.pipe2(os.O_CLOEXEC)
    output, errors = bytearray(), bytearray()
    try:
        process = await Process.start(
            _command(target),
            env=_environment(private),
            cwd=private / "work",
            policy=policy,
            descriptors={inside.ORDERS: reading, TERMINAL: target.terminal},
            stdout=output.extend,
            stderr=errors.extend,
            remove=private,
        )
    finally:
        os.close(reading)
    # only now is it known who watches over it
    supervisor = process._supervisor.pid
    os.write(writing, _orders(names, target, supervisor))
    os.close(writing)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
    finally:
        await process.end(0)
    sys.stderr.write(errors.decode(errors="replace"))
    return bytes(output)


async def attacked(level: str, network: str, names: Sequence[str], target: Target) -> dict[str, str]:
    """Have the program try some attacks, and say what came of each."""
    output = run_bare(names, target) if level == BARE else await run_confined(level, network, names, target)
    # one that ended its supervisor is not heard any more
    said: dict[str, str] = json.loads(output) if output else dict.fromkeys(names, inside.CANNOT)
    for name in names:
        seen = getattr(_module(name), "seen", None)
        if seen is None or said[name] == inside.ABSENT:
            continue
        if seen(target):
            said[name] = inside.CAN
        elif said[name] == inside.CAN:
            said[name] = inside.CANNOT
    shutil.rmtree(target.private, ignore_errors=True)
    return said


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.hostile.attacks.{name}")


async def main(level: str, network: str, outer: Path) -> None:
    """Run all attacks at a level, with a network."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_BLOCK, ANY_SIGNAL)
    # what would dump core in its working directory if nothing kept it from that
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    names = attacks.names()
    alone = [name for name in names if getattr(_module(name), "ALONE", False)]
    with victims(outer) as target:
        result = await attacked(level, network, [name for name in names if name not in alone], target)
        for name in alone:
            result |= await attacked(level, network, [name], target)
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
