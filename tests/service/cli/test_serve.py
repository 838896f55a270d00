"""`benchmax serve` and `benchmax executor`: what is said at the start, what is refused, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.artifact import write_artifact
from runner.cli import main
from runner.errors import SandboxUnavailableError
from runner.sandbox import probe
from runner.service.executor import confinement
from tests.conftest import require
from tests.integration.command_line import PROGRAM, CommandLine, Finished
from tests.service.cli.running import PATIENCE_S, serving
from tests.validation.test_zoo import bundle_of
from tests.validation.zoo import sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@contextlib.contextmanager
def started(*arguments: str, environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(PROGRAM), *arguments],
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_first_start_says_how_to_make_a_key_and_how_to_submit(tmp_path: Path) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    data = tmp_path / "data"
    with started("serve", "--data", str(data), "--port", "0") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip() for _ in range(6)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    url = lines[0].removeprefix("benchmax serves ")
    assert lines == [
        f"benchmax serves {url}",
        "  runs    1 executor, sandbox namespaces (network model-only), model mock",
        f"  data    {data}",
        f"  key     benchmax keys create NAME --data {data}",
        f"  submit  BENCHMAX_KEY=… benchmax submit DIR --server {url}",
        f"There is no key yet, so nobody can use it: export BENCHMAX_KEY=$(benchmax keys create NAME --data {data})",
    ]


def test_it_ends_in_order_and_the_next_one_finds_everything(tmp_path: Path, shared_cache: Path) -> None:
    data = tmp_path / "data"
    with serving(data, shared_cache, "--executors", "0") as first:
        assert first.facts["keys"] == 0
        first.key()
        assert first.end(signal.SIGINT) == 0
    with serving(data, shared_cache, "--executors", "0") as second:
        assert second.facts["keys"] == 1
        assert second.end() == 0
    assert [event["event"] for event in second.events()].count("ended") == 2


def test_an_executor_of_its_own_takes_the_jobs(tmp_path: Path, shared_cache: Path, benchmax: CommandLine) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    data = tmp_path / "data"
    cache = {"BENCHMAX_CACHE_DIR": str(shared_cache)}
    with (
        serving(data, shared_cache, "--executors", "0") as service,
        started("executor", "--data", str(data), "--insecure-sandbox", environ=cache) as executor,
    ):
        environ = {"BENCHMAX_KEY": service.key(), "BENCHMAX_SERVER": service.url}
        assert "valid: 0 errors" in benchmax("submit", "artifact", env=environ).good()
        executor.send_signal(signal.SIGTERM)
        assert executor.wait(PATIENCE_S) == 0


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_port_in_use_is_named(here: Callable[..., Finished], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = here("serve", "--data", str(tmp_path / "data"), "--port", str(port)).error(3)
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in said
    assert "Choose another --port" in said
    assert not (tmp_path / "data").exists()


def test_an_address_of_another_machine_is_refused(here: Callable[..., Finished], tmp_path: Path) -> None:
    said = here("serve", "--data", str(tmp_path / "data"), "--host", "192.0.2.1", "--port", "0").error(3)
    assert "cannot listen at 192.0.2.1:0: " in said


@pytest.mark.parametrize("command", ["serve --port 0 --executors 0", "executor --insecure-sandbox"])
def test_a_database_that_cannot_be_used_leaves_it_undecided(
    command: str, here: Callable[..., Finished], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    said = here(*command.split(), "--data", data, "--database", "sqlite:////proc/nowhere/x.db").error(3)
    assert "The database /proc/nowhere/x.db cannot be" in said


def test_a_newer_schema_is_left_alone(here: Callable[..., Finished], sqlite_url: str, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    data = str(tmp_path / "data")
    said = here("serve", "--port", "0", "--executors", "0", "--database", sqlite_url, "--data", data).error(3)
    assert "its schema is revision 9999" in said
    assert "or a newer one" in said


def test_a_blob_store_that_cannot_be_used_is_named(here: Callable[..., Finished], tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "file").write_text("")
    said = here(
        "serve", "--port", "0", "--executors", "0", "--data", str(folder / "data"), "--blobs", f"file://{folder}/file"
    ).error(3)
    assert "blob store" in said


@pytest.mark.parametrize("command", ["serve --port 0", "executor"])
def test_without_the_sandbox_that_uploads_need_it_does_not_start(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(level: str, network: str, **_: object) -> None:
        raise SandboxUnavailableError(f"The level {level} cannot be had.", hint="Install bubblewrap.")

    monkeypatch.setitem(confinement.__globals__, "choose_policy", refuse)
    assert main([*command.split(), "--data", str(tmp_path / "data")]) == 3
    shown = capsys.readouterr()
    assert "error: The level namespaces cannot be had. Install bubblewrap. Uploads are not run without it" in shown.err
    assert "--insecure-sandbox runs them all the same" in shown.err
    assert not shown.out
    assert not (tmp_path / "data" / "benchmax.db").exists()


def test_all_mistakes_of_the_settings_are_told_line_by_line(here: Callable[..., Finished], tmp_path: Path) -> None:
    config = tmp_path / "service.toml"
    config.write_text('[server]\nprt = 1\nport = "x"\n[limits]\nfiles = 0\n')
    finished = here("serve", "--config", str(config), "--executors", "-1", BENCHMAX_SERVE_HOTS="x")
    assert "5 settings of the service are wrong" in finished.error(2)
    told = [line.removeprefix("benchmax: ") for line in finished.err.splitlines()[:-1]]
    assert [line.partition(": ")[0] for line in told] == [
        f"{config}, [server] prt",
        "BENCHMAX_SERVE_HOTS",
        f"{config}, [server] port",
        "--executors",
        f"{config}, [limits] files",
    ]


def test_one_mistake_is_the_error(here: Callable[..., Finished], tmp_path: Path) -> None:
    assert "--port: must be a whole number from 0 to 65535, got 70000" in here("serve", "--port", "70000").error(2)


@pytest.mark.parametrize("command", ["serve", "executor", "keys list"])
@pytest.mark.parametrize("package", ["sqlalchemy", "fastapi"])
def test_without_the_extra_the_line_that_installs_it_is_said(command: str, package: str, tmp_path: Path) -> None:
    if package == "fastapi" and command != "serve":
        # the others have no use for it
        return
    code = f"import sys; sys.modules[{package!r}] = None; from runner.cli import main; sys.exit(main(sys.argv[1:]))"
    finished = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, cwd=tmp_path
    )
    assert finished.returncode == 2, finished.stderr
    (line,) = finished.stderr.splitlines()
    assert line == (
        f"benchmax: error: the service needs packages that are not installed, such as {package}. "
        "Install them: pip install 'benchmax[service]'."
    )


def test_json_of_a_start_is_one_object(tmp_path: Path, shared_cache: Path) -> None:
    with serving(tmp_path / "data", shared_cache, "--executors", "0") as service:
        assert service.facts == {
            "format": 1,
            "url": service.url,
            "executors": 0,
            "keys": 0,
            "pid": service.process.pid,
        }
        assert json.dumps(service.facts)
