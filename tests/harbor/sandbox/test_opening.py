"""Where trial sandboxes come from: whoever registered, or a program that is started."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.harbor.opening import SandboxRefusedError, SandboxRequest, open_sandbox, set_opener

REQUEST = SandboxRequest(rollout_id="r-0")


@pytest.fixture(autouse=True)
def nobody_is_registered() -> Iterator[None]:
    set_opener(None)
    yield
    set_opener(None)


async def test_who_is_registered_is_asked() -> None:
    near, far = socket.socketpair()
    asked = []

    async def opener(request: SandboxRequest) -> socket.socket:
        asked.append(request)
        return near

    set_opener(opener)
    with near, far:
        assert await open_sandbox(REQUEST) is near
    assert asked == [REQUEST]


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Have another program than `runner.trials` started, which is given the same."""
    (tmp_path / "python").write_text(f"#!{sys.executable}\nimport sys\nif sys.argv[1] != '-P': sys.exit(9)\n{source}")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


async def test_the_program_is_given_its_end_of_the_stream_and_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import socket\nstream = socket.socket(fileno=int(sys.argv[4]))\n"
    program(tmp_path, monkeypatch, f"{source}stream.sendall(' '.join(sys.argv[1:4] + sys.argv[5:]).encode())\n")
    with await open_sandbox(SandboxRequest(rollout_id="r-0", cpus=0.5, network=True)) as stream:
        assert not stream.getblocking()
        stream.setblocking(True)
        assert stream.recv(1000).decode() == (
            '-P -m runner.trials {"rollout_id": "r-0", "cpus": 0.5, "memory_bytes": null, "disk_bytes": null, '
            '"network": true}'
        )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("print('a warning', file=sys.stderr); sys.exit('no sandbox can be made here. Do this.')", "here. Do this."),
        ("sys.exit(7)", "it ended with code 7"),
        ("import none_such_runner", "has no module runner.trials"),
    ],
)
async def test_a_program_that_ends_before_it_says_something_has_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, text: str
) -> None:
    program(tmp_path, monkeypatch, source)
    with pytest.raises(SandboxRefusedError, match=text):
        await open_sandbox(REQUEST)


def test_none_of_it_loads_harbor() -> None:
    modules = ["archive", "dockerfile", "kept", "link", "opening"]
    code = (
        f"import sys\nfor name in {modules}: __import__('benchmax.envs.harbor.' + name)\nprint('harbor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("wanted", [{"cpus": 0.0}, {"memory_bytes": -1}, {"disk_bytes": 0}, {"cpus": float("inf")}])
def test_less_than_nothing_and_no_number_cannot_be_asked_for(wanted: dict[str, Any]) -> None:
    (name,) = wanted
    with pytest.raises(SandboxRefusedError, match=rf"{name} is .*Ask for more than nothing"):
        SandboxRequest(rollout_id="r", **wanted)
