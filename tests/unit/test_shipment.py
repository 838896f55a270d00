"""The worker's code as a folder: content-addressed, read-only, loadable without anything else of the runner."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runner import shipment
from runner.errors import CacheError
from runner.shipment import ship

SOURCE = Path(shipment.__file__).parent
WORKER = {f"worker/{path.name}" for path in (SOURCE / "worker").glob("*.py")}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_folder_holds_the_worker_and_what_it_shares_with_the_caller(tmp_path: Path) -> None:
    boot = ship(tmp_path / "worker")
    folder = boot.parent.parent
    shared = {
        "errors.py",
        "limits.py",
        "text.py",
        "fields.py",
        "protocol.py",
        "frames.py",
        "channel.py",
        "spinning.py",
        "transcript.py",
    }
    assert files(folder).keys() == shared | WORKER | {"__init__.py"}
    for name, data in files(folder).items():
        assert data == (b"" if name == "__init__.py" else (SOURCE / name).read_bytes())
    assert boot == folder / "worker" / "boot.py"


def test_nothing_in_the_folder_is_writable(tmp_path: Path) -> None:
    folder = ship(tmp_path / "worker").parent.parent
    for path in [folder, *folder.rglob("*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path


def test_the_same_code_is_the_same_folder_and_is_written_once(tmp_path: Path) -> None:
    first = ship(tmp_path)
    before = first.stat()
    assert ship(tmp_path) == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    assert first.stat().st_ino == before.st_ino
    assert [path.name for path in tmp_path.iterdir()] == [first.parent.parent.name]


def test_other_code_is_another_folder_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ship(tmp_path)
    monkeypatch.setattr(shipment, "MODULES", ("errors.py", "limits.py"))
    second = ship(tmp_path)
    assert first.parent.parent != second.parent.parent
    assert first.is_file()
    assert second.is_file()


def test_many_at_once_agree_and_leave_nothing_half_done(tmp_path: Path) -> None:
    results: list[Path] = []
    barrier = threading.Barrier(8)

    def one() -> None:
        barrier.wait()
        results.append(ship(tmp_path / "new" / "root"))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len(set(results)) == 1
    assert len(list((tmp_path / "new" / "root").iterdir())) == 1


def test_a_changed_file_is_refused_and_the_remedy_named(tmp_path: Path) -> None:
    boot = ship(tmp_path)
    boot.chmod(0o644)
    boot.write_bytes(b"evil()")
    with pytest.raises(CacheError, match=r"boot\.py is not what was written there\. Remove "):
        ship(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    boot = ship(tmp_path)
    boot.parent.chmod(0o755)
    boot.unlink()
    with pytest.raises(CacheError, match="is not what was written there"):
        ship(tmp_path)


def test_a_root_that_cannot_be_written_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match=r"Not a directory\. Set BENCHMAX_CACHE_DIR"):
        ship(tmp_path / "file" / "root")


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path: Path) -> None:
    folder = ship(tmp_path / "one").parent.parent
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / folder.name).write_bytes(b"")
    with pytest.raises(CacheError):
        ship(tmp_path / "two")
    assert [path.name for path in (tmp_path / "two").iterdir()] == [folder.name]


def test_the_shipped_code_needs_nothing_of_the_runner_package(tmp_path: Path) -> None:
    folder = ship(tmp_path / "worker").parent.parent
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "_private", {str(folder / "__init__.py")!r}, submodule_search_locations=[{str(folder)!r}])
package = importlib.util.module_from_spec(spec)
sys.modules["_private"] = package
spec.loader.exec_module(package)
import _private.worker.serve
loaded = [name for name in sys.modules if name == "runner" or name.startswith("runner.")]
assert not loaded, loaded
assert {str(folder)!r} not in sys.path
"""
    env = {"PYTHONPATH": str(SOURCE.parent), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath}
    result = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
