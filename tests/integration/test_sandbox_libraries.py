"""What ordinary programs are made of works at every level: threads, programs, event loops, numerical libraries."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from runner.sandbox.policy import Level
from tests.confined import BASE, Caller, box
from tests.conftest import require

pytestmark = pytest.mark.integration

THREADS = """
import concurrent.futures, threading
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
print("ok")
"""
PROGRAMS = """
import asyncio, os, subprocess, sys
assert subprocess.run([sys.executable, "-I", "-c", "print(1)"], capture_output=True, check=True).stdout == b"1\\n"
async def main():
    process = await asyncio.create_subprocess_exec("/bin/cat", stdin=-1, stdout=-1)
    assert (await process.communicate(b"x"))[0] == b"x"
asyncio.run(main())
assert os.cpu_count() > 0
print("ok")
"""
TAKEN_FOR_GRANTED = """
import mmap, os, resource, shutil, socket, threading
with open("own", "w") as file:
    file.write("x")
os.rename("own", "../home/own")
shutil.copy2("../home/own", "own")
os.truncate("own", 0)
os.link("own", "again")
with open("/dev/null", "w") as sink, open("/dev/urandom", "rb", buffering=0) as source:
    sink.write(str(source.read(1)))
assert os.system("sh -c 'ls /usr >/dev/null && exit 0'") == 0
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    for end in socket.socketpair(type=kind):
        end.close()
assert socket.getaddrinfo("localhost", 80)
mmap.mmap(-1, 4096).close()
os.close(os.memfd_create("x"))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.nice(1)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
# as libraries that spread their threads over processors do
thread = threading.Thread(target=lambda: os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0)))
thread.start()
thread.join()
print("ok")
"""
POOL = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    print("ok")
"""
NUMPY = """
import sys; sys.path.append(sys.argv[1])
import numpy
square = numpy.ones((300, 300))
assert (square @ square)[0, 0] == 300
print("ok")
"""
UVLOOP = """
import asyncio, sys; sys.path.append(sys.argv[1])
import uvloop
async def echo(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "localhost", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(b"hello\\n")
    assert await reader.readline() == b"hello\\n"
    writer.close()
    await asyncio.to_thread(open("/etc/hosts").read)
    process = await asyncio.create_subprocess_exec("/bin/true")
    assert await process.wait() == 0
    server.close()
uvloop.run(main())
print("ok")
"""


@pytest.fixture(scope="session")
def libraries(shared_cache: Path) -> Path:
    """A folder with numpy and uvloop that everybody can read, made once for all processes that share the tests."""
    folder = shared_cache / f"sandbox-libraries-{sys.version_info.major}.{sys.version_info.minor}"
    with (shared_cache / "sandbox-libraries.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            subprocess.run(
                [
                    *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--link-mode", "copy"),
                    *("--python", BASE, "--target", f"{folder}.new", "numpy", "uvloop"),
                ],
                check=True,
                umask=0o022,
            )
            Path(f"{folder}.new").rename(folder)
    return folder


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("level", get_args(Level))
def test_what_programs_take_for_granted_works(level: Level, caller: Caller) -> None:
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    with box(level, caller) as confined:
        assert confined.python(TAKEN_FOR_GRANTED) == "ok"


@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.parametrize("code", [THREADS, PROGRAMS], ids=["threads", "programs"])
def test_the_standard_library_works(code: str, level: Level) -> None:
    with box(level, "ordinary") as confined:
        assert confined.python(code) == "ok"


@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.parametrize("code", [NUMPY, UVLOOP], ids=["numpy", "uvloop"])
def test_libraries_with_machine_code_work(code: str, level: Level, libraries: Path) -> None:
    with box(level, "ordinary") as confined:
        assert confined.python(code, str(libraries), readable=[str(libraries)]) == "ok"


@pytest.mark.parametrize(("level", "caller"), [("off", "ordinary"), ("namespaces", "ordinary"), ("landlock", "root")])
def test_process_pools_work_where_shared_memory_can_be_private(level: Level, caller: Caller) -> None:
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    with box(level, caller) as confined:
        assert confined.python(POOL) == "ok"
