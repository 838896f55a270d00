"""Installs say what they do, end with everything they started, and are shared by whoever asks at once."""

from __future__ import annotations

import asyncio
import http.server
import json
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import IndexUnreachableError, InstallTimeoutError, ProvisionError
from runner.limits import Limits
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, Venv, provision_packages
from tests.conftest import require
from tests.integration.isolation import alive, until
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
FAMILIES = pytest.mark.parametrize("installer", ["uv", "pip"])

BUILDER = """
import asyncio, json, sys
from runner.provision import Cache, ProvisionOptions, provision_packages

def heard(event):
    messages.append(event.message)
    print(json.dumps({"message": event.message}), flush=True)

messages = []
venv = asyncio.run(provision_packages(
    sys.argv[4:],
    cache=Cache(sys.argv[1]),
    # without a sandbox, so that builds can say by files what they do
    options=ProvisionOptions(index_url=sys.argv[2], installer=sys.argv[3], sandbox="off"),
    on_event=heard,
))
built = any(message.startswith("installing") for message in messages)
print(json.dumps({"path": str(venv.path), "packages": dict(venv.packages), "built": built}))
"""


async def start_builder(
    cache: Cache, index: LocalIndex, installer: Family, *requirements: str
) -> asyncio.subprocess.Process:
    words = (sys.executable, "-c", BUILDER, str(cache.root), index.url, installer, *requirements)
    return await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)


async def report_of(builder: asyncio.subprocess.Process) -> dict[str, object]:
    output, _ = await builder.communicate()
    assert builder.returncode == 0
    last: dict[str, object] = json.loads(output.splitlines()[-1])
    return last


def wheel_with(index: LocalIndex, name: str, *, size: int) -> None:
    index.add(name, "1.0", files={f"{name}_data.bin": "0123456789abcdef" * (size // 16)})


def daemon_backend(pid_file: Path, then: str) -> str:
    """A build backend that leaves a process of its own session behind, twice removed from it."""
    return (
        "import os, pathlib, time\n"
        "def build_wheel(directory, settings=None, metadata=None):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        f"            pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "            null = os.open('/dev/null', os.O_RDWR)\n"
        "            for number in (0, 1, 2): os.dup2(null, number)\n"
        "            while True: time.sleep(1000)\n"
        "        os._exit(0)\n"
        f"    while not pathlib.Path({str(pid_file)!r}).exists(): time.sleep(0.01)\n"
        f"    {then}\n"
    )


WRITE_WHEEL = (
    "import zipfile\n"
    "    name = 'leaving-1.0-py3-none-any.whl'\n"
    "    with zipfile.ZipFile(os.path.join(directory, name), 'w') as wheel:\n"
    "        wheel.writestr('leaving.py', '')\n"
    "        wheel.writestr('leaving-1.0.dist-info/METADATA',"
    " 'Metadata-Version: 2.1\\nName: leaving\\nVersion: 1.0\\n')\n"
    "        wheel.writestr('leaving-1.0.dist-info/WHEEL',"
    " 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
    "        wheel.writestr('leaving-1.0.dist-info/RECORD', '')\n"
    "    return name"
)


@FAMILIES
@pytest.mark.parametrize("then", ["success", "failure", "time-out", "cancellation"])
async def test_whatever_a_build_started_ends_with_the_install(
    index: LocalIndex, cache: Cache, tmp_path: Path, installer: Family, then: str
) -> None:
    pid_file = tmp_path / "pid"
    code = {"success": WRITE_WHEEL, "failure": "raise SystemExit(1)"}.get(then, "time.sleep(1000)")
    index.add_sdist("leaving", "1.0", daemon_backend(pid_file, code))
    limits = Limits(install_silence_s=2.0) if then == "time-out" else Limits()
    task = asyncio.ensure_future(
        provision_packages(
            ["leaving"],
            cache=cache,
            # so that the build can say by a file what it has started
            options=ProvisionOptions(index_url=index.url, installer=installer, sandbox="off"),
            limits=limits,
        )
    )
    if then == "cancellation":
        await until(pid_file.exists, what="the build to start")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif then == "success":
        assert (await task).packages == {"leaving": "1.0"}
    else:
        with pytest.raises(InstallTimeoutError if then == "time-out" else ProvisionError):
            await task
    assert not alive(int(pid_file.read_text()))


@FAMILIES
async def test_downloads_are_told_with_their_bytes(index: LocalIndex, cache: Cache, installer: Family) -> None:
    wheel_with(index, "large", size=3 << 20)
    wheel_with(index, "larger", size=5 << 20)
    events: list[ProvisionEvent] = []
    await provision_packages(
        ["large", "larger"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
        on_event=events.append,
    )
    downloads = [event for event in events if event.phase == "download"]
    totals = [event.bytes_total or 0 for event in downloads]
    done = [event.bytes_done or 0 for event in downloads]
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(8 << 20, rel=0.1)
    assert done == sorted(done)
    assert done[-1] > 0
    assert all(event.bytes_done is None for event in events if event.phase != "download")
    order = list(dict.fromkeys(event.phase for event in events))
    assert order[:2] == ["interpreter", "resolve"]
    assert {"download", "install"} <= set(order)
    assert [event.elapsed_s for event in events] == sorted(event.elapsed_s for event in events)


@FAMILIES
async def test_build_from_source_is_a_phase_of_its_own(index: LocalIndex, cache: Cache, installer: Family) -> None:
    backend = f"import os\ndef build_wheel(directory, settings=None, metadata=None):\n    {WRITE_WHEEL}\n"
    index.add_sdist("leaving", "1.0", backend)
    events: list[ProvisionEvent] = []
    await provision_packages(
        ["leaving"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
        on_event=events.append,
    )
    if installer == "pip":
        assert any("metadata" in event.message for event in events if event.phase == "build")
    assert {event.phase for event in events} <= {"interpreter", "resolve", "download", "build", "install"}


@FAMILIES
async def test_eight_processes_on_a_cold_cache_share_one_build(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("parent", "1.0", ["child"])
    wheel_with(index, "child", size=1 << 20)
    builders = [await start_builder(cache, index, installer, "parent") for _ in range(8)]
    reports = await asyncio.gather(*(report_of(builder) for builder in builders))
    assert [report["built"] for report in reports].count(True) == 1
    assert len({report["path"] for report in reports}) == 1
    assert all(report["packages"] == {"child": "1.0", "parent": "1.0"} for report in reports)


@FAMILIES
async def test_killed_builder_is_succeeded_by_one_that_was_waiting(
    index: LocalIndex, cache: Cache, tmp_path: Path, installer: Family
) -> None:
    """The survivor of the killed one's tree, an installer and a build, is gone before the next one starts."""
    pid_file, gate = tmp_path / "pid", tmp_path / "gate"
    waits = f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n    {WRITE_WHEEL}"
    index.add_sdist("leaving", "1.0", daemon_backend(pid_file, waits))
    builder = await start_builder(cache, index, installer, "leaving")
    await until(pid_file.exists, what="the build to start")
    waiting = await start_builder(cache, index, installer, "leaving")
    assert waiting.stdout is not None
    while b"waiting for another process" not in await waiting.stdout.readline():
        pass
    left = int(pid_file.read_text())
    pid_file.unlink()
    builder.send_signal(signal.SIGKILL)
    await builder.communicate()
    await until(lambda: not alive(left), what="the tree of the killed builder to end")
    gate.touch()
    report = await report_of(waiting)
    assert report["built"] is True
    assert report["packages"] == {"leaving": "1.0"}
    entry = Path(str(report["path"])).parent
    assert len([path for path in entry.iterdir() if path.is_dir()]) == 1


async def test_builder_that_is_stopped_is_not_waited_for_without_end(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    index.stall = "/pack/pack-1.0"
    builder = await start_builder(cache, index, "uv", "pack")
    assert await asyncio.to_thread(index.stalled.wait, 50)
    builder.send_signal(signal.SIGSTOP)
    options = ProvisionOptions(index_url=index.url, installer="uv")
    with pytest.raises(InstallTimeoutError, match=r"another process has held venv [0-9a-f]+ for 0\.5 s"):
        await provision_packages(["pack"], cache=cache, options=options, limits=Limits(install_s=0.5))
    builder.send_signal(signal.SIGKILL)
    await builder.communicate()
    index.stall = None
    assert (await provision_packages(["pack"], cache=cache, options=options)).packages == {"pack": "1.0"}


async def test_many_different_venvs_at_once_share_one_cold_cache(index: LocalIndex, cache: Cache) -> None:
    for name in "abcdefgh":
        index.add(f"part-{name}", "1.0", ["shared"])
    wheel_with(index, "shared", size=1 << 20)
    options = ProvisionOptions(index_url=index.url)
    venvs = await asyncio.gather(
        *(provision_packages([f"part-{name}"], cache=cache, options=options) for name in "abcdefgh")
    )
    assert [set(venv.packages) for venv in venvs] == [{f"part-{name}", "shared"} for name in "abcdefgh"]
    assert len({venv.path for venv in venvs}) == 8


@FAMILIES
async def test_proxy_of_the_caller_is_used(
    index: LocalIndex, cache: Cache, installer: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local index is the proxy: what is asked for by a whole address lies under that address's name."""
    index.add("pack", "1.0")
    beyond = index.root / "http:" / "beyond.invalid"
    beyond.mkdir(parents=True)
    (beyond / "simple").symlink_to(index.root / "simple")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, index.url.removesuffix("/simple"))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    venv = await provision_packages(
        ["pack"],
        cache=cache,
        options=ProvisionOptions(index_url="http://beyond.invalid/simple", installer=installer),
    )
    assert venv.packages == {"pack": "1.0"}
    assert any(path.startswith("http://beyond.invalid/simple/pack") for path in index.requests)


@contextmanager
def served_with_tls(folder: Path, certificate: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust the certificate hangs up; that is what is tested."""

    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@FAMILIES
async def test_certificate_authorities_of_the_caller_are_trusted(
    index: LocalIndex, cache: Cache, installer: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("openssl"), "openssl")
    index.add("pack", "1.0")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with served_with_tls(index.root, both) as url:
        options = ProvisionOptions(index_url=url, installer=installer)
        with pytest.raises(IndexUnreachableError, match=r"cannot be reached: .*certificate") as caught:
            await provision_packages(["pack"], cache=cache, options=options)
        assert "SSL_CERT_FILE" in caught.value.hint
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(certificate))
        assert (await provision_packages(["pack"], cache=cache, options=options)).packages == {"pack": "1.0"}


async def made_from(cache: Cache, requirement: str, *file_hosts: str) -> Venv:
    options = ProvisionOptions(index_url="http://127.0.0.1:9", file_hosts=file_hosts)
    return await provision_packages([requirement], cache=cache, options=options)


async def test_address_whose_content_can_change_is_warned_about(
    index: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    package = index.add("pack", "1.0")
    url = f"{index.url}/pack/{package.wheel_name}"
    (warning,) = (await made_from(cache, f"pack @ {url}", url.split("/")[2])).warnings
    assert warning.startswith(f"pack comes from {url}, where something else may be later")
    local = tmp_path / package.wheel_name
    local.write_bytes(package.wheel())
    assert (await made_from(cache, f"pack @ {local.as_uri()}")).warnings == ()


async def test_branch_is_warned_about_and_a_commit_is_not(cache: Cache, tmp_path: Path) -> None:
    require(shutil.which("git"), "git")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (repository / "backend.py").write_text(
        f"import os\ndef build_wheel(directory, settings=None, metadata=None):\n    {WRITE_WHEEL}\n"
    )

    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    branch = await made_from(cache, f"leaving @ git+{repository.as_uri()}@main")
    assert branch.packages == {"leaving": "1.0"}
    (warning,) = branch.warnings
    assert "name a commit in full" in warning
    exact = await made_from(cache, f"leaving @ git+{repository.as_uri()}@{commit}")
    assert exact.packages == {"leaving": "1.0"}
    assert exact.warnings == ()
