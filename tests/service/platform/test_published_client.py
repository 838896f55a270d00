"""The published client itself, unchanged and as a black box, in a venv of its own, against this service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from runner.errors import InterpreterNotFoundError
from runner.provision import Cache
from runner.provision.interpreter import find_interpreter
from tests.conftest import require
from tests.service.platform.platform_server import Served

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

CLIENT: Final = "castform==0.2.5"
PYTHON: Final = "3.12"
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "calculator"
INSTALL_S: Final = 120.0

PROGRAM: Final = """
import asyncio, json, sys
from pathlib import Path

import calculator
from benchmax.bundle import dump_bundle
from castform import validate_environment
from castform.platform import upload_assets

folder = Path(sys.argv[1])
rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
bundle = dump_bundle(calculator.Calculator, local_modules=[calculator])
assets = upload_assets(bundle=bundle, train_dataset=rows, eval_dataset=rows, run_name="calculator")
report = asyncio.run(
    validate_environment(calculator.Calculator(), model="some-model", base_dir=folder, remote_assets=assets)
)
found = {name: getattr(report, name) for name in (
    "ok", "local_errors", "remote_errors", "static_errors", "local_warnings", "remote_warnings",
)}
found["reasons"] = [outcome.termination_reason for outcome in (*report.local.values(), *report.remote.values())]
print(json.dumps(found, default=str))
"""


@pytest.fixture
async def python(shared_cache: Path, tmp_path: Path) -> Path:
    """An interpreter that has the published client."""
    try:
        found = await find_interpreter(PYTHON, python=None, cache=Cache(shared_cache))
    except InterpreterNotFoundError:
        found = None
    require(found, f"Python {PYTHON}")
    assert found is not None
    uv, folder = Path(sys.executable).with_name("uv"), tmp_path / "published"
    subprocess.run([uv, "venv", "--quiet", "--python", found.path, folder], check=True, timeout=INSTALL_S)
    python = folder / "bin" / "python"
    installed = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, CLIENT], capture_output=True, timeout=INSTALL_S
    )
    require(installed.returncode == 0, CLIENT)
    return python


def session_file(folder: Path, secret: str, url: str) -> Path:
    """What a login leaves behind, here with the key itself as the session."""
    path = folder / "credentials.json"
    profile = {"auth_url": url, "session": {"access_token": secret}}
    path.write_text(json.dumps({"version": 2, "profiles": {"prod": profile}}))
    path.chmod(0o600)
    return path


def test_the_published_client_uploads_validates_here_and_there_and_is_content(
    python: Path, served: Served, secret: str, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [python, "-c", PROGRAM, EXAMPLE],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(EXAMPLE),
            "CASTFORM_PLATFORM_URL": served.url,
            "CASTFORM_LLM_URL": f"{served.url}/v1",
            "CASTFORM_AUTH_URL": served.url,
            "CASTFORM_API_KEY": secret,
            "CASTFORM_CREDENTIALS_PATH": str(session_file(tmp_path, secret, served.url)),
            "CASTFORM_CONFIG_PATH": str(tmp_path / "config.toml"),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert found["ok"] is True, found
    assert found["reasons"] == ["finished"] * 4
