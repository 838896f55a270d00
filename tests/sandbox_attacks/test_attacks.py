"""What a program can do at `off`, and cannot at a stronger level; and what it still can, because it has to."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from runner.sandbox.landlock import SCOPE_VERSION
from runner.sandbox.machine import look
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability
from tests.conftest import require
from tests.sandbox_attacks.attacks import ATTACKS, NEEDS
from tests.sandbox_attacks.confined import BASE, Box, Caller, box

SCRIPT = Path(__file__).parent / "attacks.py"
CONFINED: tuple[Level, ...] = ("landlock", "namespaces")

ALLOWED: dict[tuple[Level, Caller], frozenset[str]] = {
    ("landlock", "root"): frozenset({"connect to loopback"}),
    # Landlock knows no modes, and another process of the same user is in sight as anywhere
    ("landlock", "ordinary"): frozenset(
        {"connect to loopback", "see that another process is there", "change the mode of a file"}
    ),
    ("namespaces", "root"): frozenset({"connect to loopback"}),
    ("namespaces", "ordinary"): frozenset({"connect to loopback"}),
}
"""What the levels do not promise, with `network="open"`."""


OLDER_KERNELS: dict[Level, frozenset[str]] = {
    "landlock": frozenset({"signal another process"}),
    "namespaces": frozenset({"connect to an abstract socket"}),
}
"""What is promised only where Landlock has scopes."""


@functools.cache
def outcome(level: Level, caller: Caller) -> dict[str, str]:
    """Run all attacks at a level once, and return what became of each."""
    if caller == "root":
        require(os.geteuid() == 0, "root")
    found = availability(level)
    require(found.available, f"sandbox level {level} ({found.blocker})")
    with box(level, caller) as confined, victims(confined) as context:
        done = confined.run(
            [BASE, "-I", f"{context['installed']}/attacks.py", json.dumps(context)],
            readable=[context["installed"]],
            no_new_privileges=level != "off",
            descriptors=[context["terminal"]],
        )
        assert done.returncode == 0, done.stderr.decode()
        result: dict[str, str] = json.loads(done.stdout)
        seen = Path("/dev/shm", context["name"])
        if seen.exists():
            seen.unlink()
        elif result["leave something in shared memory"] == "can":
            result["leave something in shared memory"] = "cannot: only it sees that"
    return result


@contextmanager
def victims(confined: Box) -> Iterator[dict[str, Any]]:
    """Make what is attacked: a process, files, sockets, a terminal, a set-uid program; all the caller's own."""
    outer = confined.folder.parent
    home, installed = outer / "home", outer / "installed"
    for folder in (home, home / ".ssh", installed):
        folder.mkdir()
    (home / ".ssh" / "id_ed25519").write_text("private key")
    (home / "notes").write_text("notes of the user")
    (installed / "package.py").write_text("")
    shutil.copy(SCRIPT, installed)
    for path in (home, home / ".ssh", *home.rglob("*"), installed, *installed.iterdir()):
        os.chown(path, confined.user, confined.user)
    (home / ".ssh" / "id_ed25519").chmod(0o600)
    set_uid = installed / "test"
    shutil.copy("/usr/bin/test", set_uid)
    set_uid.chmod(0o4755)
    name = f"benchmax-test-{os.getpid()}-{confined.level}-{confined.caller}"
    with contextlib.ExitStack() as stack:
        victim = stack.enter_context(
            subprocess.Popen(
                ["/bin/cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={"SECRET": "victims-secret"},
                user=confined.user if os.geteuid() == 0 else None,
                group=confined.user if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
            )
        )
        abstract, file, tcp = (
            stack.enter_context(socket.socket(family)) for family in (socket.AF_UNIX, socket.AF_UNIX, socket.AF_INET)
        )
        abstract.bind(f"\0{name}")
        file.bind(str(home / "agent"))
        os.chown(home / "agent", confined.user, confined.user)
        tcp.bind(("127.0.0.1", 0))
        for server in (abstract, file, tcp):
            server.listen()
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        yield {
            "victim": victim.pid,
            "home": str(home),
            "private": str(confined.folder),
            "installed": str(installed),
            "name": name,
            "terminal": slave,
            "set_uid": str(set_uid),
            "socket": str(home / "agent"),
            "port": tcp.getsockname()[1],
        }
        assert victim.stdin is not None
        victim.stdin.close()
        victim.wait()


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("attack", ATTACKS)
def test_without_a_sandbox_a_program_can(attack: str, caller: Caller) -> None:
    assert outcome("off", caller)[attack] == "can"


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("level", CONFINED)
@pytest.mark.parametrize("attack", ATTACKS)
def test_in_a_sandbox_it_cannot(attack: str, level: Level, caller: Caller) -> None:
    result = outcome(level, caller)[attack]
    older = OLDER_KERNELS[level] if look().landlock < SCOPE_VERSION else frozenset()
    if attack in ALLOWED[level, caller]:
        assert result == "can"
    elif attack in older:
        assert result in ("can", "cannot EPERM")
    else:
        assert result.startswith("cannot"), result


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.parametrize("need", NEEDS)
def test_at_every_level_it_can(need: str, level: Level, caller: Caller) -> None:
    assert outcome(level, caller)[need] == "can"
