"""Installs of a package whose build tries attacks, at each sandbox level, by a caller that is root or an ordinary user.

`said` is for tests. Run as a program, it is the caller: it installs a harmless package first, then the hostile one.
What came of each attack is in the wheel that the build makes, since at a sandboxed level there is no other way out.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from runner.provision import Cache, ProvisionOptions, Venv, provision_packages
from runner.sandbox.plan import Plan
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability, launch
from runner.sandbox.view import interpreter
from tests.confined import BASE, Caller, caller_steps, user_of
from tests.conftest import require
from tests.hostile.test_wheel_pth import state
from tests.integration.local_index import LocalIndex, Package

Family = Literal["uv", "pip"]
ROOT: Final = Path(__file__).parents[2]
ATTACKS: Final = Path(__file__).parent / "sdists"
PATIENCE_S: Final = 100.0

SECRET: Final = "sk-the-callers-own-secret"
LEFT: Final = "98765.4321"
"""How long the process sleeps that the build leaves behind; nobody else sleeps for that long."""

BACKEND: Final = """
import json, os, zipfile
PLACES = {places!r}
ATTACKS = {attacks!r}

def outcome(code):
    scope = {{}}
    exec(code, scope)
    try:
        scope["attack"](PLACES)
    except Exception as error:
        return "cannot: " + type(error).__name__ + " " + str(error)
    return "can"

def build_wheel(directory, settings=None, metadata=None):
    found = {{name: outcome(code) for name, code in ATTACKS.items()}}
    name = "hostile-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("hostile_report.json", json.dumps(found))
        wheel.writestr("hostile-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: hostile\\nVersion: 1.0\\n")
        wheel.writestr(
            "hostile-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        )
        wheel.writestr("hostile-1.0.dist-info/RECORD", "")
    return name
"""


@functools.cache
def said(level: Level, caller: Caller, family: Family = "uv") -> Mapping[str, Any]:
    """Install at a level, once for all tests of a process; return what came of it.

    `attacks` by name; `changed`, whether the installer's cache or the other venv is another afterwards; `left`, how
    many processes of the build are still there.
    """
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    require(availability(level).available, f"the sandbox level {level}")
    user = user_of(caller)
    with tempfile.TemporaryDirectory(prefix="benchmax-sdist-") as outer:
        folder = Path(outer)
        folder.chmod(0o755)
        for path in (folder / "caller", folder / "caller" / "home" / ".ssh"):
            path.mkdir(parents=True)
        for name in ("home/notes.txt", "home/.ssh/id_ed25519"):
            (folder / "caller" / name).write_text(SECRET)
        for path in (folder / "caller", *(folder / "caller").rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.chown(path, user, user)
        needed = [sys.prefix, *interpreter(BASE), str(ROOT), str(folder / "caller")]
        plan = Plan(
            steps=tuple(caller_steps(user, needed, writable=(str(folder / "caller"),))),
            argv=(sys.executable, "-m", "tests.hostile.sdist_lab", level, family, str(folder / "caller")),
        )
        environment = {"PATH": "/usr/bin:/bin", "HOME": f"{folder}/caller/home", "CALLERS_KEY": SECRET}
        done = launch(plan, cwd=str(ROOT), env=environment, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    result: Mapping[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return result


async def _install(index: LocalIndex, cache: Cache, level: str, family: Family, name: str) -> Venv:
    options = ProvisionOptions(index_url=index.url, installer=family, sandbox=level)
    return await provision_packages([name], cache=cache, options=options)


async def _main(level: str, family: Family, folder: Path) -> Mapping[str, object]:
    cache = Cache(folder / "cache")
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    with LocalIndex(folder / "index") as index:
        index.add("harmless", "1.0", files={"harmless_more.py": "X = 1\n"})
        other = await _install(index, cache, level, family, "harmless")
        places = {
            "secret": SECRET,
            "caller": os.getpid(),
            "notes": str(folder / "home" / "notes.txt"),
            "key": str(folder / "home" / ".ssh" / "id_ed25519"),
            "venv": str(other.path),
            "cache": str(cache.uv_dir if family == "uv" else cache.pip_dir),
            "port": server.sockets[0].getsockname()[1],
            "left": LEFT,
        }
        attacks = {path.stem: path.read_text() for path in sorted(ATTACKS.glob("[a-z]*.py"))}
        backend = BACKEND.format(places=places, attacks=attacks)
        package = Package(name="hostile", version="1.0")
        index.add_file(package, package.sdist_name, package.sdist(backend))
        # what an installer writes itself while it looks at a source, once before
        before = state(other.path)
        venv = await _install(index, cache, level, family, "hostile")
        (report,) = venv.path.rglob("hostile_report.json")
        marks = [
            str(path) for path in (*other.path.rglob("*"), *Path(places["cache"]).rglob("*")) if "intruder" in path.name
        ]
        spoiled = [name for name, digest in state(other.path).items() if before.get(name) != digest]
        return {"attacks": json.loads(report.read_text()), "changed": [*marks, *spoiled], "left": _left()}


def _left() -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                count += LEFT.encode() in (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
    return count


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"reached")
    writer.close()


if __name__ == "__main__":
    _, level, family, place = sys.argv
    print(json.dumps(asyncio.run(_main(level, "pip" if family == "pip" else "uv", Path(place)))))
