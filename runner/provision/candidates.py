"""Where a CPython of a given series may be installed, best places first.

Only proposes files; whether one is what its name says is found out by running it. The working directory has no part
in this: relative entries of PATH and of other variables are left out, and so are version managers' shims, which read
files near it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be an interpreter, and the name of the place it was found in."""

    place: str
    path: Path


# (name, variables that name a root, roots without them, the interpreters' folders below a root)
_MANAGERS: Final = (
    ("pyenv", ("PYENV_ROOT",), ("~/.pyenv", "/opt/pyenv", "/usr/local/pyenv"), ("versions/*/bin",)),
    ("uv", ("UV_PYTHON_INSTALL_DIR",), ("DATA/uv/python",), ("*/bin",)),
    ("asdf", ("ASDF_DATA_DIR",), ("~/.asdf", "/opt/asdf-data"), ("installs/python/*/bin",)),
    ("mise", ("MISE_DATA_DIR",), ("DATA/mise", "DATA/rtx"), ("installs/python/*/bin",)),
    ("hatch", ("HATCH_DATA_DIR",), ("DATA/hatch",), ("pythons/*/python/bin",)),
    ("pdm", (), ("DATA/pdm",), ("python/*/bin",)),
    ("rye", ("RYE_HOME",), ("~/.rye",), ("py/*/bin", "py/*/install/bin")),
    ("pixi", ("PIXI_HOME",), ("~/.pixi",), ("envs/*/bin",)),
    (
        "conda",
        ("CONDA_ROOT", "CONDA_PREFIX", "MAMBA_ROOT_PREFIX"),
        (
            *("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba", "~/.conda"),
            *("/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3"),
        ),
        ("bin", "envs/*/bin"),
    ),
    ("GitHub's tool cache", ("RUNNER_TOOL_CACHE",), ("/opt/hostedtoolcache",), ("Python/*/*/bin",)),
)
_CONDA_LIST: Final = "~/.conda/environments.txt"
"""Where conda writes down the folders of all environments it made, wherever they are."""

_SYSTEM: Final = (
    *("usr/local/bin", "usr/bin", "opt/python/*/bin", "opt/homebrew/bin", "home/linuxbrew/.linuxbrew/bin"),
    *("nix/var/nix/profiles/default/bin", "run/current-system/sw/bin"),
)
VARIABLES: Final = ("PATH", "HOME", "XDG_DATA_HOME", *(name for _, names, *_ in _MANAGERS for name in names))
"""Everything of the caller's environment that has a say in what is found."""


def candidates(series: str, *, app_data: Path) -> Iterator[Candidate]:
    """Propose interpreters of a series, the likeliest first.

    Args:
        series: Such as `3.12`.
        app_data: Folder where virtualenv's discovery may keep what it learned.

    Yields:
        Existing executable files; the same file may come more than once under several names.
    """
    own = getattr(sys, "_base_executable", None) or sys.executable
    if running_series() == series and own:
        yield Candidate("this process", Path(own))
    yield from _discovered(series, app_data)
    names = (f"python{series}", "python3", "python")
    for folder in _path_folders():
        for name in names:
            yield from _executable("PATH", folder / name)
    for place, folder in _managed_folders():
        yield from _executable(place, folder / names[0])
    for pattern in _SYSTEM:
        for folder in _expand(Path("/"), pattern):
            yield from _executable("system folders", folder / names[0])
    yield from _executable("~/.local/bin", _home("~/.local/bin") / names[0])


def on_path(name: str) -> Path | None:
    """Find a program by its bare name, in the absolute entries of PATH alone."""
    for folder in _path_folders():
        for found in _executable("PATH", folder / name):
            return found.path
    return None


def running_series() -> str:
    """Return the series of this process's Python."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def described_places() -> str:
    """Name the places that are looked at, for a message."""
    managers = ", ".join(place for place, *_ in _MANAGERS)
    return f"this process's own Python, PATH, the folders of {managers}, and the system's"


def _discovered(series: str, app_data: Path) -> Iterator[Candidate]:
    # heavy, and not needed where the search's answer is remembered
    from python_discovery import DiskCache, get_interpreter

    # given only what cannot point at the working directory: without the managers' variables no shim is followed, and
    # a folder with links to shims, which a manager would run there, is left to the search below
    folders = [folder for folder in _path_folders() if not _leads_to_shims(folder, series)]
    environment = {"PATH": os.pathsep.join(str(folder) for folder in folders)}
    for name in ("HOME", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR"):
        if Path(os.environ.get(name, "")).is_absolute():
            environment[name] = os.environ[name]
    # a broken interpreter on PATH is no reason to end the search; the folders below are still looked at
    with contextlib.suppress(OSError, RuntimeError):
        found = get_interpreter(f"cpython{series}", cache=DiskCache(app_data), env=environment)
        if found is not None and found.system_executable:
            yield Candidate("virtualenv's discovery", Path(found.system_executable))


def _path_folders() -> list[Path]:
    folders = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    return [folder for folder in folders if folder.is_absolute() and folder.name != "shims"]


def _leads_to_shims(folder: Path, series: str) -> bool:
    for name in (f"python{series}", "python3", "python"):
        with contextlib.suppress(OSError, RuntimeError):
            if (folder / name).resolve().parent.name == "shims":
                return True
    return False


def _managed_folders() -> Iterator[tuple[str, Path]]:
    for folder in map(Path, os.environ.get("PATH", "").split(os.pathsep)):
        # a manager whose own variable is not set gives itself away by its shims
        if folder.is_absolute() and folder.name == "shims":
            for pattern in ("versions/*/bin", "installs/python/*/bin"):
                for found in _expand(folder.parent, pattern):
                    yield "the folder of PATH's shims", found
    for place, variables, defaults, patterns in _MANAGERS:
        named = [Path(os.environ[name]) for name in variables if os.environ.get(name)]
        for root in dict.fromkeys([*named, *map(_home, defaults)]):
            if root.is_absolute():
                for pattern in patterns:
                    for found in _expand(root, pattern):
                        yield place, found
    for prefix in _conda_environments():
        yield "conda's list of environments", prefix / "bin"


def _conda_environments() -> list[Path]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = _home(_CONDA_LIST).read_text(encoding="utf-8").splitlines()
        return [Path(line.strip()) for line in lines if Path(line.strip()).is_absolute()]
    return []


def _home(text: str) -> Path:
    """Replace `~` by the home folder and `DATA` by the folder for programs' data."""
    if text.startswith("DATA/"):
        data = Path(os.environ.get("XDG_DATA_HOME", ""))
        return (data if data.is_absolute() else _home("~/.local/share")) / text.removeprefix("DATA/")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        # no home at all; being relative, it is left out
        return Path(text)


def _expand(root: Path, pattern: str) -> list[Path]:
    """Expand a pattern, newest final version first."""
    try:
        found = [path for path in root.glob(pattern) if path.is_dir()]
    except OSError:
        return []
    return sorted(found, key=lambda path: _version_order(str(path.relative_to(root))), reverse=True)


def _version_order(name: str) -> tuple[bool, list[int], str]:
    final = re.search(r"\d(?:a|b|rc)\d|-dev\b", name) is None
    return final, [int(number) for number in re.findall(r"\d+", name)], name


def _executable(place: str, path: Path) -> Iterator[Candidate]:
    try:
        usable = path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return
    if usable:
        yield Candidate(place, path)
