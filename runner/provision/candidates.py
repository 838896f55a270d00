"""Where a CPython of a given series may be installed, best places first.

Only proposes files; whether one is what its name says is found out by running it. The working directory has no part
in this: relative entries of PATH are left out, and so are version managers' shims, which read files near it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be an interpreter, and the name of the place it was found in."""

    place: str
    path: Path


# folders of installations below a root, and the interpreter's folder inside each
_MANAGERS: Final = (
    ("pyenv", "PYENV_ROOT", ("~/.pyenv",), ("versions/*/bin",)),
    ("uv", "UV_PYTHON_INSTALL_DIR", ("~/.local/share/uv/python",), ("*/bin",)),
    ("asdf", "ASDF_DATA_DIR", ("~/.asdf",), ("installs/python/*/bin",)),
    ("mise", "MISE_DATA_DIR", ("~/.local/share/mise",), ("installs/python/*/bin",)),
    ("hatch", "HATCH_DATA_DIR", ("~/.local/share/hatch",), ("pythons/*/python/bin",)),
    ("rye", "RYE_HOME", ("~/.rye",), ("py/*/bin", "py/*/install/bin")),
    (
        "conda",
        "CONDA_ROOT",
        (
            *("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba", "~/.conda"),
            *("/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3"),
        ),
        ("bin", "envs/*/bin"),
    ),
)
_SYSTEM: Final = ("/usr/local/bin", "/usr/bin", "/opt/python/*/bin", "/opt/homebrew/bin")


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
        for folder in _expand(Path("/"), pattern.lstrip("/")):
            yield from _executable("system folders", folder / names[0])


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

    # given only what cannot point at the working directory: without the managers' variables no shim is followed
    environment = {"PATH": os.pathsep.join(str(folder) for folder in _path_folders())}
    for name in ("HOME", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR"):
        if name in os.environ:
            environment[name] = os.environ[name]
    # a broken interpreter on PATH is no reason to end the search; the folders below are still looked at
    with contextlib.suppress(OSError, RuntimeError):
        found = get_interpreter(f"cpython{series}", cache=DiskCache(app_data), env=environment)
        if found is not None and found.system_executable:
            yield Candidate("virtualenv's discovery", Path(found.system_executable))


def _path_folders() -> list[Path]:
    folders = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    return [folder for folder in folders if folder.is_absolute() and folder.name != "shims"]


def _managed_folders(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, Path]]:
    for folder in map(Path, environ.get("PATH", "").split(os.pathsep)):
        # a manager whose own variable is not set gives itself away by its shims
        if folder.is_absolute() and folder.name == "shims":
            for pattern in ("versions/*/bin", "installs/python/*/bin"):
                for found in _expand(folder.parent, pattern):
                    yield "the folder of PATH's shims", found
    for place, variable, defaults, patterns in _MANAGERS:
        roots = [environ[variable]] if environ.get(variable) else list(defaults)
        for root in roots:
            folder = Path(root).expanduser()
            if not folder.is_absolute():
                continue
            for pattern in patterns:
                for found in _expand(folder, pattern):
                    yield place, found


def _expand(root: Path, pattern: str) -> list[Path]:
    """Expand a pattern, newest version first."""
    try:
        found = [path for path in root.glob(pattern) if path.is_dir()]
    except OSError:
        return []
    return sorted(found, key=_version_order, reverse=True)


def _version_order(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", str(path))], str(path)


def _executable(place: str, path: Path) -> Iterator[Candidate]:
    try:
        usable = path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return
    if usable:
        yield Candidate(place, path)
