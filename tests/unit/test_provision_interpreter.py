"""An interpreter is believed only after it ran, and is found again without running anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runner.errors import InterpreterNotFoundError, UsageError
from runner.provision import interpreter as interpreter_module
from runner.provision.cache import Cache
from runner.provision.candidates import VARIABLES, running_series
from runner.provision.interpreter import find_interpreter

OURS = running_series()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing installed in it, and a PATH with one empty folder."""
    home, folder = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(folder))
    for name in VARIABLES:
        if name not in ("HOME", "PATH"):
            monkeypatch.delenv(name, raising=False)
    return home


def fake(path: Path, *, version: str = "3.99.1", implementation: str = "cpython", **more: object) -> Path:
    """Write a program that answers like an interpreter, and counts its starts in a file next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = {
        "implementation": implementation,
        "version": version,
        "series": ".".join(version.split(".")[:2]),
        "base": str(path),
        "prefix": str(path.parent.parent),
        "platform": "linux-x86_64",
        "free_threaded": False,
        **more,
    }
    path.write_text(f"#!/bin/sh\necho start >> '{path}.starts'\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    path.chmod(0o755)
    return path


def broken(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n")
    path.chmod(0o755)
    return path


def starts(path: Path) -> int:
    counter = Path(f"{path}.starts")
    return len(counter.read_text().splitlines()) if counter.exists() else 0


async def test_own_series_is_this_processes_base_interpreter(cache: Cache) -> None:
    found = await find_interpreter(OURS, python=None, cache=cache)
    assert found.series == OURS
    assert found.path == Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    assert found.prefix == Path(sys.base_prefix).resolve()


async def test_none_found_lists_what_was_looked_at(cache: Cache, alone: Path) -> None:
    broken(alone.parent / "bin" / "python3.99")
    fake(alone / ".pyenv/versions/3.98.0/bin/python3.99", version="3.98.0")
    with pytest.raises(InterpreterNotFoundError, match=r"no CPython 3\.99 .* PATH, .*pyenv") as caught:
        await find_interpreter("3.99", python=None, cache=cache)
    assert "uv python install 3.99" in caught.value.hint
    assert "command not found" in caught.value.detail
    assert "version 3.98.0" in caught.value.detail


async def test_shim_that_does_not_work_is_passed_over(cache: Cache, alone: Path) -> None:
    broken(alone.parent / "bin" / "python3.99")
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    found = await find_interpreter("3.99", python=None, cache=cache)
    assert found.path == real


@pytest.mark.parametrize(
    "place",
    [
        ".pyenv/versions/3.99.1/bin",
        ".local/share/uv/python/cpython-3.99.1-linux-x86_64-gnu/bin",
        ".asdf/installs/python/3.99.1/bin",
        ".local/share/mise/installs/python/3.99.1/bin",
        "miniconda3/bin",
        "miniforge3/envs/study/bin",
        ".conda/envs/study/bin",
        ".rye/py/cpython@3.99.1/bin",
        ".rye/py/cpython@3.99.1/install/bin",
        ".pixi/envs/study/bin",
        ".local/share/hatch/pythons/3.99/python/bin",
        ".local/share/pdm/python/cpython@3.99.1/bin",
        ".local/bin",
    ],
)
async def test_version_managers_folders_are_searched(cache: Cache, alone: Path, place: str) -> None:
    real = fake(alone / place / "python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_shims_on_path_lead_to_their_managers_folder(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(broken(alone / "opt/pyenv/shims/python3.99").parent))
    real = fake(alone / "opt/pyenv/versions/3.99.1/bin/python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_newest_patch_comes_first(cache: Cache, alone: Path) -> None:
    for patch in (2, 10, 9):
        fake(alone / f".pyenv/versions/3.99.{patch}/bin/python3.99", version=f"3.99.{patch}")
    assert (await find_interpreter("3.99", python=None, cache=cache)).version == "3.99.10"


@pytest.mark.parametrize("other", [{"implementation": "pypy"}, {"free_threaded": True}, {"version": "3.98.0"}])
async def test_name_alone_convinces_nobody(cache: Cache, alone: Path, other: dict[str, object]) -> None:
    fake(alone / ".pyenv/versions/3.99.9/bin/python3.99", **other)  # type: ignore[arg-type]
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_second_search_starts_nothing(cache: Cache, alone: Path) -> None:
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    first = await find_interpreter("3.99", python=None, cache=cache)
    before = starts(real)
    assert await find_interpreter("3.99", python=None, cache=cache) == first
    assert starts(real) == before


async def test_changed_interpreter_is_asked_again(cache: Cache, alone: Path) -> None:
    real = fake(alone / ".pyenv/versions/3.99/bin/python3.99")
    await find_interpreter("3.99", python=None, cache=cache)
    fake(real, version="3.99.20")
    assert (await find_interpreter("3.99", python=None, cache=cache)).version == "3.99.20"


async def test_vanished_interpreter_is_searched_for_anew(cache: Cache, alone: Path) -> None:
    fake(alone / ".pyenv/versions/3.99.9/bin/python3.99").chmod(0o755)
    await find_interpreter("3.99", python=None, cache=cache)
    (alone / ".pyenv/versions/3.99.9/bin/python3.99").unlink()
    other = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == other


async def test_link_leads_to_what_stands_behind_it(cache: Cache, alone: Path) -> None:
    real = fake(alone / "installed/bin/python3.99")
    (alone.parent / "bin" / "python3.99").symlink_to(real)
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_path_can_be_named(cache: Cache, alone: Path) -> None:
    real = fake(alone / "somewhere/python-of-mine")
    assert (await find_interpreter("3.99", python=str(real), cache=cache)).path == real


async def test_venv_can_be_named_and_gives_its_base(cache: Cache) -> None:
    found = await find_interpreter(OURS, python=sys.executable, cache=cache)
    assert found.path == Path(sys._base_executable).resolve()  # type: ignore[attr-defined]


async def test_exact_version_can_be_named(cache: Cache, alone: Path) -> None:
    for patch in (1, 2):
        fake(alone / f".pyenv/versions/3.99.{patch}/bin/python3.99", version=f"3.99.{patch}")
    assert (await find_interpreter("3.99", python="3.99.1", cache=cache)).version == "3.99.1"
    assert (await find_interpreter("3.99", python="3.99", cache=cache)).version == "3.99.2"


async def test_named_interpreter_of_another_series_is_refused(cache: Cache, alone: Path) -> None:
    real = fake(alone / "somewhere/python", version="3.98.7")
    with pytest.raises(UsageError, match=r"cpython 3\.98\.7, but CPython 3\.99 is needed"):
        await find_interpreter("3.99", python=str(real), cache=cache)
    with pytest.raises(UsageError, match=r"3\.98 was asked for, but 3\.99"):
        await find_interpreter("3.99", python="3.98", cache=cache)


async def test_named_path_that_is_no_interpreter_is_refused(cache: Cache, alone: Path) -> None:
    with pytest.raises(UsageError, match="neither an interpreter nor a version"):
        await find_interpreter("3.99", python="/nonexistent/python", cache=cache)
    with pytest.raises(InterpreterNotFoundError, match="command not found"):
        await find_interpreter("3.99", python=str(broken(alone / "python")), cache=cache)


async def test_working_folder_and_relative_path_entries_have_no_say(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = alone.parent / "project"
    trap = fake(near / "bin/python3.99", version="3.99.50")
    fake(near / "python3.99", version="3.99.50")
    (near / ".python-version").write_text("3.98\n")
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    monkeypatch.chdir(near)
    monkeypatch.setenv("PATH", "bin::.")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real
    assert starts(trap) == 0


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("PYENV_ROOT", "versions/3.99.1/bin"),
        ("UV_PYTHON_INSTALL_DIR", "cpython-3.99.1/bin"),
        ("ASDF_DATA_DIR", "installs/python/3.99.1/bin"),
        ("MISE_DATA_DIR", "installs/python/3.99.1/bin"),
        ("CONDA_PREFIX", "bin"),
        ("MAMBA_ROOT_PREFIX", "envs/study/bin"),
        ("RUNNER_TOOL_CACHE", "Python/3.99.1/x64/bin"),
        ("XDG_DATA_HOME", "uv/python/cpython-3.99.1/bin"),
        ("XDG_DATA_HOME", "mise/installs/python/3.99.1/bin"),
    ],
)
async def test_managers_own_variables_name_their_folders(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    real = fake(alone.parent / "managed" / below / "python3.99")
    monkeypatch.setenv(variable, str(alone.parent / "managed"))
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_variable_of_a_manager_does_not_hide_its_usual_folder(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(alone / "emptied"))
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_condas_list_of_environments_is_read(cache: Cache, alone: Path) -> None:
    real = fake(alone.parent / "far away/env/bin/python3.99")
    (alone / ".conda").mkdir()
    (alone / ".conda/environments.txt").write_text(f"relative/env\n/nonexistent\n{real.parent.parent}\n")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_final_version_comes_before_its_candidates(cache: Cache, alone: Path) -> None:
    for version in ("3.99.0rc2", "3.99.0", "3.99.0b4", "3.99-dev", "anaconda3-2099.10"):
        fake(alone / f".pyenv/versions/{version}/bin/python3.99", version=version)
    (alone / ".pyenv/versions/anaconda3-2099.10/bin/python3.99").unlink()
    assert (await find_interpreter("3.99", python=None, cache=cache)).version == "3.99.0"


async def test_candidate_version_is_better_than_none(cache: Cache, alone: Path) -> None:
    fake(alone / ".pyenv/versions/3.99.0rc2/bin/python3.99", version="3.99.0rc2")
    assert (await find_interpreter("3.99", python=None, cache=cache)).version == "3.99.0rc2"


async def test_link_to_a_shim_does_not_read_the_working_folder(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim outside its folder, as some people link one into a folder on PATH, obeys files where it is started."""
    wanted = fake(alone / "opt/versions/3.99.1/bin/python3.99")
    other = fake(alone / "opt/versions/3.99.7/bin/python3.99", version="3.99.7")
    shim = alone / "opt/shims/python3.99"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nif [ -e .python-version ]; then exec {other} "$@"; fi\nexec {wanted} "$@"\n')
    shim.chmod(0o755)
    (alone.parent / "bin" / "python3.99").symlink_to(shim)
    near = alone.parent / "project"
    near.mkdir()
    (near / ".python-version").write_text("3.99.7\n")
    monkeypatch.chdir(near)
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == wanted
    assert starts(other) == 0


async def test_shim_that_never_answers_is_passed_over(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter_module, "PROBE_S", 0.5)
    hanging = alone / ".pyenv/versions/3.99.9/bin/python3.99"
    hanging.parent.mkdir(parents=True)
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    real = fake(alone / ".pyenv/versions/3.99.1/bin/python3.99")
    assert (await find_interpreter("3.99", python=None, cache=cache)).path == real


async def test_bare_name_is_looked_up_on_path_and_never_in_the_working_folder(
    cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = alone.parent / "project"
    trap = fake(near / "python3.99", version="3.99.50")
    monkeypatch.chdir(near)
    monkeypatch.setenv("PATH", f".::{alone.parent / 'bin'}")
    with pytest.raises(UsageError, match=r"write \./python3\.99"):
        await find_interpreter("3.99", python="python3.99", cache=cache)
    real = fake(alone.parent / "bin" / "python3.99")
    assert (await find_interpreter("3.99", python="python3.99", cache=cache)).path == real
    assert starts(trap) == 0
    assert (await find_interpreter("3.99", python="./python3.99", cache=cache)).path == trap


async def test_folder_of_an_installation_or_venv_can_be_named(cache: Cache, alone: Path) -> None:
    real = fake(alone / "somewhere/bin/python")
    assert (await find_interpreter("3.99", python=str(alone / "somewhere"), cache=cache)).path == real
    found = await find_interpreter(OURS, python=sys.prefix, cache=cache)
    assert found.path == Path(sys._base_executable).resolve()  # type: ignore[attr-defined]


async def test_relative_variables_point_nowhere(cache: Cache, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = alone.parent / "project"
    near.mkdir()
    traps = [
        fake(near / "versions/3.99.9/bin/python3.99", version="3.99.9"),
        fake(near / "uv/python/cpython-3.99.9/bin/python3.99", version="3.99.9"),
        fake(near / ".local/share/uv/python/cpython-3.99.9/bin/python3.99", version="3.99.9"),
        fake(near / "bin/python3.99", version="3.99.9"),
    ]
    monkeypatch.chdir(near)
    for name in VARIABLES:
        monkeypatch.setenv(name, ".")
    with pytest.raises(InterpreterNotFoundError):
        await find_interpreter("3.99", python=None, cache=cache)
    assert [starts(trap) for trap in traps] == [0, 0, 0, 0]
