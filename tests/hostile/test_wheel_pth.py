"""A wheel whose start-up files run at every start of its venv's Python, and spoil every file they reach."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from runner.provision import Cache, ProvisionOptions, compile_modules, provision_packages
from tests.integration.local_index import LocalIndex, local_index

Family = Literal["uv", "pip"]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("installer", ["uv", "pip"])]

SPOIL = """
import os, pathlib, sys
root = pathlib.Path(__file__).resolve().parent if "__file__" in globals() else None
marker = pathlib.Path({marker!r})
marker.touch()
for folder, _, names in os.walk(pathlib.Path(sys.prefix) / "lib"):
    for name in names:
        path = pathlib.Path(folder, name)
        try:
            os.chmod(path, 0o644)
            with open(path, "ab") as file:
                file.write(b"# spoiled")
        except OSError:
            pass
"""


def spoiling(marker: Path) -> str:
    """One line, as a `.pth` file wants it, that appends to every file of its venv that can be opened."""
    return f"import sys; exec({SPOIL.format(marker=str(marker))!r})\n"


def state(*folders: Path) -> dict[str, str]:
    """Digest every file in some folders."""
    found = {}
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                path = Path(place, name)
                found[str(path)] = str(path.readlink()) if path.is_symlink() else _digest(path)
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_start_up_files_run_in_no_build_and_spoil_neither_the_cache_nor_another_venv(
    tmp_path: Path, cache: Cache, installer: Family
) -> None:
    marker = tmp_path / "ran"
    with local_index(tmp_path / "index") as index:
        index.add("harmless", "1.0", files={"harmless_more.py": "X = 1\n"})
        index.add(
            "starter",
            "1.0",
            ["harmless"],
            files={"starter.pth": spoiling(marker), "sitecustomize.py": spoiling(marker), "usercustomize.py": "1/0\n"},
        )
        # built after the start-up files could have been installed, by an interpreter that must not see them
        index.add_sdist("late", "1.0", BACKEND, requires=("starter",))
        options = ProvisionOptions(index_url=index.url, installer=installer)
        other = await provision_packages(["harmless"], cache=cache, options=options)
        venv = await provision_packages(["starter", "late"], cache=cache, options=options)
        assert {"starter", "late", "harmless"} == set(venv.packages)
        await compile_modules(venv, [str(path.relative_to(venv.path)) for path in venv.path.rglob("*.py")])
        assert not marker.exists()

        downloads = (cache.uv_dir, cache.pip_dir, cache.tools_dir, cache.wheels_dir)
        before, elsewhere = state(*downloads), state(other.path)
        subprocess.run([venv.python, "-c", ""], env={}, capture_output=True, check=False)
        assert marker.exists(), "the trap itself must work"
        assert any(path.read_bytes().endswith(b"# spoiled") for path in venv.path.rglob("harmless*.py"))
        assert state(*downloads) == before
        assert state(other.path) == elsewhere

        # what is made from the same cache afterwards is as clean as what was made before
        later = await provision_packages(["harmless", "late<2"], cache=cache, options=options)
        clean = [path.read_bytes() for path in later.path.rglob("harmless*.py")]
        assert clean
        assert not any(b"spoiled" in text for text in clean)


async def test_start_up_files_do_not_run_in_the_build_of_another_package(
    tmp_path: Path, cache: Cache, installer: Family, index: LocalIndex
) -> None:
    """Nor in an environment that a build makes for itself, of packages its source declares."""
    marker, seen = tmp_path / "ran", tmp_path / "seen"
    index.add("starter", "1.0", files={"starter.pth": f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"})
    spying = f"import sys\nopen({str(seen)!r}, 'w').write(repr(sys.path))\n{BACKEND}"
    index.add_sdist("late", "1.0", spying)
    # without a sandbox, so that the build can say what it sees
    options = ProvisionOptions(index_url=index.url, installer=installer, sandbox="off")
    venv = await provision_packages(["starter", "late"], cache=cache, options=options)
    assert set(venv.packages) == {"starter", "late"}
    assert not marker.exists()
    assert str(venv.path) not in seen.read_text()


BACKEND = """
import os, zipfile

def build_wheel(directory, settings=None, metadata=None):
    name = "late-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("late.py", "")
        wheel.writestr("late-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: late\\nVersion: 1.0\\n")
        tags = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("late-1.0.dist-info/WHEEL", tags)
        wheel.writestr("late-1.0.dist-info/RECORD", "")
    return name
"""
