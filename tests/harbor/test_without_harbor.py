"""Harbor is optional: nothing loads it before it is used, and its absence is said in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import benchmax.envs.harbor

SURFACE = [
    "BundledAgentSource",
    "BundledHarborAgent",
    "CustomSandboxCredentials",
    "DaytonaCredentials",
    "HarborDataset",
    "HarborEnv",
    "HarborTrialTemplate",
    "ModalCredentials",
    "SandboxCredentials",
]

USES = {
    "HarborEnv": "HarborEnv(dataset=None, trial=None)",
    "HarborDataset.create": "asyncio.run(HarborDataset.create(None, base_dir='.'))",
    "BundledHarborAgent": "BundledHarborAgent(None, None)",
}


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code with a folder at the front of the module path, in a Python whose own packages come after."""
    start = f"import asyncio, sys; sys.path.insert(0, {str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True)


def test_the_package_lists_what_it_offers() -> None:
    assert benchmax.envs.harbor.__all__ == SURFACE


def test_importing_the_package_loads_nothing_of_harbor(tmp_path: Path) -> None:
    # one that is there, so that it would be loaded
    (tmp_path / "harbor").mkdir()
    (tmp_path / "harbor" / "__init__.py").write_text("raise SystemExit('harbor was loaded')")
    modules = ["benchmax", "benchmax.envs", "benchmax.envs.harbor"]
    for name in ("env", "types", "dataset", "credentials", "bundled_agent", "dep_check", "opening", "link"):
        modules.append(f"benchmax.envs.harbor.{name}")
    code = "".join(f"import {name}\n" for name in modules)
    finished = python(f"{code}assert 'harbor' not in sys.modules\nprint('fine')", tmp_path)
    assert finished.stdout == "fine\n", finished.stderr


def test_using_it_without_harbor_names_the_extra(tmp_path: Path) -> None:
    for use in USES.values():
        hide = "sys.modules.pop('harbor', None); sys.path_importer_cache.clear()\n"
        block = "import importlib.abc\nclass No(importlib.abc.MetaPathFinder):\n    def find_spec(self, name, *_):\n"
        block += (
            "        if name == 'harbor': raise ModuleNotFoundError(name, name=name)\nsys.meta_path.insert(0, No())\n"
        )
        finished = python(f"{hide}{block}from benchmax.envs.harbor import *\n{use}", tmp_path)
        last = finished.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: "), finished.stderr
        assert "benchmax[harbor]" in last


def test_a_module_that_harbor_itself_misses_is_named(tmp_path: Path) -> None:
    (tmp_path / "harbor").mkdir()
    (tmp_path / "harbor" / "__init__.py").write_text("import no_such_module_here")
    finished = python("from benchmax.envs.harbor import *\nHarborEnv(dataset=None, trial=None)", tmp_path)
    assert finished.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module_here'"


def test_asking_for_harbor_where_it_is_there_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "harbor").mkdir()
    (tmp_path / "harbor" / "__init__.py").write_text("")
    finished = python("from benchmax.envs.harbor.dep_check import require_harbor\nrequire_harbor()", tmp_path)
    assert finished.returncode == 0, finished.stderr
