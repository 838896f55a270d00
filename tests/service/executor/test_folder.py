"""Private folders of executors: those of the dead are removed, those of the living are not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from runner.service.blobs.disk import DiskBlobs
from runner.service.executor.folder import remove_abandoned, work_folder
from runner.service.executor.inputs import fetch_inputs
from tests.service.nursery import Child, Nursery


def holder(nursery: Nursery, parent: Path) -> tuple[Child, Path]:
    process = nursery.start("tests.service.executor.holding", str(parent), env=os.environ)
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def end(process: Child) -> None:
    process.kill()
    process.wait()


def test_temporary_files_are_made_in_it_and_it_goes_with_its_executor(tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    with work_folder(tmp_path / "executors") as folder:
        assert Path(tempfile.mkdtemp()).parent == folder
    assert not folder.exists()
    assert tempfile.gettempdir() == before


def test_the_folder_of_an_executor_that_was_killed_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    nursery: Nursery, tmp_path: Path
) -> None:
    dead, left = holder(nursery, tmp_path)
    living, kept = holder(nursery, tmp_path)
    try:
        end(dead)
        with work_folder(tmp_path):
            assert not left.exists()
            assert (kept / "job-1").is_dir()
    finally:
        end(living)
    assert remove_abandoned(tmp_path) == [kept]


def test_a_folder_that_is_just_being_made_is_left_alone_and_one_that_never_was_finished_is_not(tmp_path: Path) -> None:
    young, old = tmp_path / "benchmax-executor-young", tmp_path / "benchmax-executor-old"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (1, 1))
    assert remove_abandoned(tmp_path) == [old]
    assert young.exists()


@pytest.mark.parametrize("role", ["data/../../x", "data//etc/passwd", "data/", "other"])
async def test_a_file_that_would_leave_its_folder_is_not_fetched(role: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no place"):
        await fetch_inputs(DiskBlobs(tmp_path / "blobs"), {role: "0" * 64}, tmp_path)
