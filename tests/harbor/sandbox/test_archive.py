"""Folders on their way into a sandbox, and what may come out of one."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmax.envs.harbor import archive
from benchmax.envs.harbor.archive import ArchiveError, packed, unpack


def made(*members: tarfile.TarInfo, content: bytes = b"") -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for member in members:
            member.size = len(content) if member.isfile() else 0
            tar.addfile(member, io.BytesIO(content))
    file.seek(0)
    return file


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_folder_arrives_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "empty").mkdir(parents=True)
    (source / "run.sh").write_bytes(b"#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "same.sh").hardlink_to(source / "run.sh")
    with packed(source) as file:
        assert unpack(file, target) == 0
    assert tree(target) == {"empty": None, "run.sh": b"#!/bin/sh\n", "same.sh": b"#!/bin/sh\n"}
    assert os.access(target / "run.sh", os.X_OK)


def test_nobody_is_told_who_owns_the_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with packed(tmp_path) as file, tarfile.open(fileobj=file) as tar:
        assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in tar} == {(0, 0, "", "")}


def test_what_is_there_is_written_over_and_what_is_not_in_the_archive_stays(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "stays").write_bytes(b"stays")
    unpack(made(member("old"), content=b"new"), tmp_path)
    assert tree(tmp_path) == {"old": b"new", "stays": b"stays"}


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="leads out"):
        unpack(made(member(name), content=b"x"), tmp_path / "target")
    assert not (tmp_path / "out").exists()


def test_links_and_special_files_are_left_out_and_counted(tmp_path: Path) -> None:
    file = made(
        member("link", tarfile.SYMTYPE, "/etc"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
        member("file"),
        content=b"x",
    )
    assert unpack(file, tmp_path) == 3
    assert tree(tmp_path) == {"file": b"x"}


def test_a_file_is_not_written_through_a_link_that_came_before_it(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    unpack(made(member("way", tarfile.SYMTYPE, str(outside)), member("way/file"), content=b"x"), target)
    assert tree(outside) == {}
    assert tree(target) == {"way": None, "way/file": b"x"}


def test_neither_special_bits_nor_unreadable_files_are_made(tmp_path: Path) -> None:
    unpack(made(member("set", mode=0o6777), member("closed", mode=0o000)), tmp_path)
    assert (tmp_path / "set").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "closed").stat().st_mode & 0o7777 == 0o600


def test_an_archive_with_too_many_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    with pytest.raises(ArchiveError, match="more than 3"):
        unpack(made(*(member(f"f{k}") for k in range(4))), tmp_path)


def with_holes(size: int) -> io.BytesIO:
    """An archive of one file that is said to be so large, and is almost all hole."""
    info = member("holes")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "holes",
        "GNU.sparse.realsize": str(size),
    }
    content = f"1\n{size - 1}\n1\n".encode().ljust(512, b"\0") + b"x"
    return made(info, content=content)


def test_holes_and_second_names_count_as_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    assert unpack(with_holes(1000), tmp_path / "small") == 0
    assert (tmp_path / "small" / "holes").read_bytes() == bytes(999) + b"x"
    names = [member(f"n{k}", tarfile.LNKTYPE, "first") for k in range(3)]
    for file in (with_holes(2**62), made(member("first"), *names, content=b"x" * 30_000)):
        with pytest.raises(ArchiveError, match="more than 100000 bytes"):
            unpack(file, tmp_path / "large")
    written = [path.stat().st_size for path in (tmp_path / "large").rglob("*")]
    assert sum(written) <= 200_000


def test_what_is_said_of_a_member_is_not_read_without_bounds(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="are said of one of its members"):
        unpack(made(member("x" * 2_000_000), content=b"x"), tmp_path)


def half(file: io.BytesIO) -> bytes:
    return file.getvalue()[:700]


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda: half(made(member("file"), content=b"x" * 1000)),
        lambda: b"no archive at all" * 100,
        lambda: made(member("second", tarfile.LNKTYPE, "first")).getvalue(),
        lambda: made(member("file"), content=b"x").getvalue().replace(b"ustar", b"xstar"),
    ],
)
def test_what_is_no_whole_archive_is_one_error(tmp_path: Path, spoiled: Callable[[], bytes]) -> None:
    with pytest.raises(ArchiveError):
        unpack(io.BytesIO(spoiled()), tmp_path / "target")


def test_only_a_folder_can_be_packed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        packed(tmp_path / "file")
