"""Real interpreters of every series are found wherever they are installed, whatever lies in the working directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import InterpreterNotFoundError, UsageError
from runner.packing import PackRequest, pack
from runner.provision import Cache, ProvisionOptions, provision_packages
from runner.provision.candidates import VARIABLES
from runner.provision.interpreter import Interpreter, find_interpreter
from tests.conftest import require
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SERIES = ("3.11", "3.12", "3.13")


async def installed(series: str, cache: Cache) -> Interpreter:
    """The interpreter of a series that this machine has; skips the test where there is none."""
    try:
        found: Interpreter | None = await find_interpreter(series, python=None, cache=cache)
    except InterpreterNotFoundError:
        found = None
    require(found, f"Python {series}")
    assert found is not None
    return found


def version_of(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A project folder in which everything that could speak for another Python lies ready."""
    project = tmp_path / "project"
    project.mkdir()
    (project / ".python-version").write_text("3.8\n")
    (project / ".tool-versions").write_text("python 3.8.0\n")
    (project / "uv.toml").write_text('python-preference = "only-managed"\npython-downloads = "manual"\n')
    (project / "pyproject.toml").write_text('[project]\nname = "near"\nversion = "1"\nrequires-python = "==3.8.*"\n')
    for name in ("python", "python3", *(f"python{series}" for series in SERIES)):
        (project / name).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\nexit 1\n")
        (project / name).chmod(0o755)
    (project / ".venv/bin").mkdir(parents=True)
    shutil.copy(project / "python", project / ".venv/bin/python")
    return project


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.parametrize("series", SERIES)
async def test_venv_of_each_installed_series_runs_that_series_from_its_exact_path(
    index: LocalIndex, cache: Cache, series: str, installer: Family
) -> None:
    found = await installed(series, cache)
    index.add("pack", "1.0")
    venv = await provision_packages(
        ["pack"],
        python_series=series,
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.python_version == series
    assert venv.base_python == found.path == venv.python.resolve()
    assert version_of(venv.python) == series
    assert venv.packages == {"pack": "1.0"}


@pytest.mark.parametrize("path", [".", "", ".:", ":bin:", "./"])
async def test_working_directory_changes_nothing_about_the_interpreter(
    index: LocalIndex, cache: Cache, traps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    expected = await installed(HERE, cache)
    monkeypatch.chdir(traps)
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(traps / ".venv"))
    index.add("pack", "1.0")
    other = Cache(tmp_path / "other")
    venv = await provision_packages(["pack"], cache=other, options=ProvisionOptions(index_url=index.url))
    assert venv.base_python == expected.path
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("series", [series for series in SERIES if series != HERE])
async def test_series_behind_shims_that_do_not_work_is_found_in_the_managers_folder(
    index: LocalIndex, cache: Cache, tmp_path: Path, traps: Path, monkeypatch: pytest.MonkeyPatch, series: str
) -> None:
    real = await installed(series, cache)
    root = tmp_path / "opt/pyenv"
    shims = root / "shims"
    shims.mkdir(parents=True)
    for name in (f"python{series}", "python3", "python"):
        (shims / name).write_text(f'#!/bin/sh\necho "pyenv: {name}: command not found" >&2\nexit 127\n')
        (shims / name).chmod(0o755)
    (root / "versions").mkdir()
    (root / "versions" / real.version).symlink_to(real.path.parent.parent)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}/usr/bin")
    monkeypatch.chdir(traps)
    found = await find_interpreter(series, python=None, cache=Cache(tmp_path / "other"))
    assert found.series == series
    assert not (tmp_path / "ran").exists()


async def test_interpreter_named_by_the_caller_is_the_one_that_is_used(
    index: LocalIndex, cache: Cache, tmp_path: Path
) -> None:
    """Of two installations of one series, the one that is named."""
    real = await installed(HERE, cache)
    link = tmp_path / "named" / "python"
    link.parent.mkdir()
    link.symlink_to(real.path)
    index.add("pack", "1.0")
    venv = await provision_packages(
        ["pack"], python=str(link), cache=cache, options=ProvisionOptions(index_url=index.url)
    )
    assert venv.base_python == real.path
    made = tmp_path / "venv"
    subprocess.run([real.path, "-m", "venv", "--without-pip", made], check=True)
    again = await provision_packages(
        ["pack"], python=str(made), cache=cache, options=ProvisionOptions(index_url=index.url)
    )
    assert again == venv


async def test_series_that_nobody_has_lists_every_place_and_every_candidate(
    cache: Cache, traps: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(traps)
    with pytest.raises(InterpreterNotFoundError) as caught:
        await provision_packages(["pack"], python_series="3.77", cache=cache)
    for place in ("PATH", "pyenv", "uv", "asdf", "mise", "conda", "system"):
        assert place in caught.value.message
    assert str(traps) not in caught.value.detail
    assert "--python" in caught.value.hint
    assert not (tmp_path / "ran").exists()


async def test_bundling_for_a_bare_name_runs_nothing_in_the_working_directory(
    shared_cache: Path, tmp_path: Path, traps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traps)
    monkeypatch.setenv("PATH", ".")
    (traps / "tiny.py").write_text("class Tiny: ...\n")
    request = PackRequest(target=f"{traps / 'tiny.py'}:Tiny", python=f"python{HERE}")
    with pytest.raises(UsageError, match=rf"--python python{HERE}: No such file or program") as caught:
        await pack(request, tmp_path / "out", cache=Cache(shared_cache))
    assert f"./python{HERE}" in caught.value.hint
    assert not (tmp_path / "ran").exists()
