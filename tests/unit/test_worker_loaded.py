"""Which modules a worker reports as worth compiling."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from runner.worker import loaded


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as the worker's venv, with no module loaded from it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "modules", {})
    (tmp_path / "venv").mkdir()
    return tmp_path / "venv"


def load(name: str, file: object) -> None:
    module = ModuleType(name)
    module.__file__ = file  # type: ignore[assignment]  # anything may be there
    sys.modules[name] = module


def test_modules_without_a_compiled_file_are_listed_relative_to_the_venv(venv: Path) -> None:
    for name in ("fresh", "compiled"):
        load(name, str(venv / "lib" / f"{name}.py"))
    made = Path(importlib.util.cache_from_source(str(venv / "lib" / "compiled.py")))
    made.parent.mkdir(parents=True)
    made.touch()
    assert loaded.uncompiled_modules() == ["lib/fresh.py"]


def test_what_is_not_a_module_of_the_venv_is_left_out(venv: Path) -> None:
    load("standard", "/usr/lib/python3/os.py")
    load("beside", f"{venv}-other/lib/a.py")
    load("extension", str(venv / "lib" / "fast.so"))
    load("nothing", None)
    load("number", 7)
    load("broken-name", str(venv / "lib" / "line\nbreak.py"))
    load("long", str(venv / ("x" * 600)) + ".py")
    assert loaded.uncompiled_modules() == []


def test_objects_among_the_modules_that_raise_do_no_harm(venv: Path) -> None:
    class Trap:
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            raise SystemExit(f"asked for {name}") if name != "__dict__" else RuntimeError("no")

    sys.modules["trap"] = Trap()  # type: ignore[assignment]  # bundles do this to load lazily
    sys.modules["none"] = None  # type: ignore[assignment]  # how an import is forbidden
    load("fresh", str(venv / "fresh.py"))
    assert loaded.uncompiled_modules() == ["fresh.py"]


def test_the_list_is_bounded(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "MAX_LOADED_MODULES", 3)
    for number in range(10):
        load(f"m{number}", str(venv / f"m{number}.py"))
    assert len(loaded.uncompiled_modules()) == 3
