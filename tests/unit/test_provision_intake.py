"""What a build may leave in the place of a wheel, and what is made of it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.tags import Tag

from runner.provision import Cache, intake
from runner.provision.intake import BuiltWheel, kept, take_in
from runner.provision.place import MisplacedFileError, read_inside
from runner.sandbox.disk import remove

TAGS = frozenset({Tag("py3", "none", "any")})
NAME = "pack-1.0-py3-none-any.whl"


def wheel(path: Path, *, name: str = "pack", version: str = "1.0", inner: str = "pack-1.0.dist-info") -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{inner}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work" / "out"
    folder.mkdir(parents=True)
    yield folder
    # also what others could not remove
    remove(str(tmp_path / "work"))


def taken(left: Path, version: str = "1.0") -> BuiltWheel:
    outer = left.parents[1]
    return take_in(left, left.parent, "pack", version, TAGS, outer / "kept", Cache(outer / "cache"))


def test_wheel_is_copied_and_found_again(left: Path, tmp_path: Path) -> None:
    (left / "deep" / "er").mkdir(parents=True)
    wheel(left / "deep" / "er" / NAME)
    found = taken(left)
    assert found.path.read_bytes() == (left / "deep" / "er" / NAME).read_bytes()
    assert found.path.is_relative_to(tmp_path / "kept")
    assert kept(tmp_path / "kept", Cache(tmp_path / "cache")) == found


def test_version_that_only_the_build_can_tell_is_the_wheels(left: Path) -> None:
    wheel(left / NAME)
    assert taken(left, version="").version == "1.0"


def test_wheels_of_other_packages_are_left_alone(left: Path) -> None:
    wheel(left / "needed-2.0-py3-none-any.whl", name="needed", version="2.0")
    wheel(left / NAME)
    assert taken(left).path.name == NAME


def other_version(left: Path) -> None:
    wheel(left / "pack-2.0-py3-none-any.whl", version="2.0")


def other_machine(left: Path) -> None:
    wheel(left / "pack-1.0-cp27-cp27m-win32.whl")


def other_name_inside(left: Path) -> None:
    wheel(left / NAME, name="victim")


def two_descriptions(left: Path) -> None:
    with zipfile.ZipFile(left / NAME, "w") as archive:
        for inner in ("pack", "victim"):
            archive.writestr(f"{inner}-1.0.dist-info/METADATA", "Name: pack\nVersion: 1.0\n")


def no_archive(left: Path) -> None:
    (left / NAME).write_bytes(b"no archive")


def link_to_a_file(left: Path) -> None:
    outside = left.parents[1] / "secret"
    wheel(outside)
    (left / NAME).symlink_to(outside)


def link_to_a_folder(left: Path) -> None:
    outside = left.parents[1] / "elsewhere"
    outside.mkdir()
    wheel(outside / NAME)
    left.rmdir()
    left.symlink_to(outside)


def pipe(left: Path) -> None:
    os.mkfifo(left / NAME)


def folder(left: Path) -> None:
    (left / NAME).mkdir()


def folders_without_end(left: Path) -> None:
    here = os.open(left, os.O_RDONLY)
    try:
        for _ in range(1500):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
    finally:
        os.close(here)


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (lambda left: None, "none of that name"),
        (other_version, "not version 1.0"),
        (other_machine, "for another Python or machine"),
        (other_name_inside, "another name or version"),
        (two_descriptions, "one METADATA"),
        (no_archive, "cannot be read"),
        (link_to_a_file, "cannot be read"),
        (link_to_a_folder, "reached through a link"),
        (pipe, "no regular file"),
        (folder, "none of that name"),
        (folders_without_end, "cannot be read|none of that name"),
    ],
)
def test_anything_else_is_refused(left: Path, leave: Callable[[Path], None], said: str) -> None:
    leave(left)
    with pytest.raises(MisplacedFileError, match=said):
        taken(left)


def test_size_is_bounded(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(left / NAME)
    monkeypatch.setattr(intake, "BUILT_WHEEL_BYTES", 10)
    with pytest.raises(MisplacedFileError, match="larger than"):
        taken(left)


def test_number_of_files_is_bounded(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        (left / str(number)).touch()
    monkeypatch.setattr(intake, "BUILT_FILES", 5)
    with pytest.raises(MisplacedFileError, match="more than 5 files"):
        taken(left)


def test_what_a_program_wrote_is_read_within_bounds(left: Path) -> None:
    (left / "said").write_text("12345")
    assert read_inside(left / "said", left, 5) == b"12345"
    with pytest.raises(MisplacedFileError, match="larger than 4 bytes"):
        read_inside(left / "said", left, 4)
    with pytest.raises(MisplacedFileError, match="cannot be read"):
        read_inside(left / "unsaid", left, 4)
