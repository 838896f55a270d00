"""What folders of untrusted code hold on disk is measured whatever is in them, and they are removed whatever it is."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sandbox import disk
from runner.sandbox.disk import ENTRY_BYTES, DiskWatch, TooDeepError, held_open, remove, used

MIB = 1024**2
DEPTH = 10
"""What counts as too deep here: nobody else could remove what really is."""


@pytest.fixture(autouse=True)
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_DEPTH", DEPTH)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "folder"
    found.mkdir()
    return found


def nest(folder: Path, levels: int) -> None:
    """Make folders in each other."""
    handle = os.open(folder, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("inner", dir_fd=handle)
        inner = os.open("inner", os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


def test_files_count_as_what_they_take_and_at_least_as_an_inode(folder: Path) -> None:
    assert used([str(folder)]) == 0
    (folder / "large").write_bytes(bytes(MIB))
    (folder / "empty").touch()
    (folder / "inner").mkdir()
    (folder / "inner" / "link").symlink_to("/usr")
    with (folder / "holes").open("wb") as file:
        file.truncate(100 * MIB)
    assert used([str(folder)]) == MIB + 4 * ENTRY_BYTES


def test_a_file_with_several_names_is_counted_once(folder: Path) -> None:
    (folder / "one").write_bytes(bytes(MIB))
    os.link(folder / "one", folder / "two")
    assert used([str(folder)]) == MIB


def test_a_file_without_a_name_is_counted_while_it_is_open(folder: Path) -> None:
    before = held_open([os.getpid()], str(folder))
    with (folder / "gone").open("wb") as file:
        file.write(bytes(MIB))
        file.flush()
        (folder / "gone").unlink()
        # whoever is named twice, or gone
        assert held_open([os.getpid(), os.getpid(), 999_999_999], str(folder)) == before + MIB
        assert used([str(folder)]) == 0


def test_folders_nested_too_deep_are_told(folder: Path) -> None:
    nest(folder, DEPTH + 1)
    with pytest.raises(TooDeepError):
        used([str(folder)])
    remove(str(folder))
    assert not folder.exists()


def test_a_folder_that_was_closed_is_measured_and_removed_as_its_owner_could(folder: Path) -> None:
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "large").write_bytes(bytes(MIB))
    (folder / "closed" / "inner").chmod(0o400)
    (folder / "closed").chmod(0)
    assert used([str(folder)]) == MIB + 2 * ENTRY_BYTES
    remove(str(folder))
    assert not folder.exists()


def test_a_folder_that_can_be_read_keeps_its_mode(folder: Path) -> None:
    folder.chmod(0o500)
    used([str(folder)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o500


@pytest.mark.parametrize("levels", [DEPTH, DEPTH + 1, 5 * DEPTH])
def test_what_is_nested_deep_is_removed(folder: Path, levels: int) -> None:
    nest(folder, levels)
    remove(str(folder))
    assert not folder.exists()


def test_nothing_is_followed_out_of_a_folder_that_is_removed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (folder / "link").symlink_to(tmp_path / "kept")
    os.mkfifo(folder / "pipe")
    remove(str(folder))
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").exists()


def test_a_link_in_the_place_of_the_folder_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "file").touch()
    (tmp_path / "link").symlink_to(folder)
    remove(str(tmp_path / "link"))
    remove(str(tmp_path / "nothing"))
    assert (folder / "file").exists()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "INTERVAL_S", 0.01)
    yield


def test_a_watch_ends_when_too_much_is_there(folder: Path, quick: None) -> None:
    watch = DiskWatch([str(folder)], 2 * MIB, list)
    reading, writing = os.pipe()
    thread = threading.Thread(target=watch.run, args=(writing,))
    thread.start()
    (folder / "some").write_bytes(bytes(MIB))
    (folder / "more").write_bytes(bytes(2 * MIB))
    assert os.read(reading, 1)
    thread.join(10)
    assert watch.exceeded
    assert not thread.is_alive()
    os.close(reading)
    os.close(writing)


def test_what_is_nested_too_deep_counts_as_too_much(folder: Path, quick: None) -> None:
    nest(folder, DEPTH + 1)
    reading, writing = os.pipe()
    watch = DiskWatch([str(folder)], 10**12, list)
    watch.run(writing)
    assert watch.exceeded
    os.close(reading)
    os.close(writing)
    remove(str(folder))
