"""A folder of an ordinary caller's as an overlay: a worker sees what it writes, and the caller's files never change."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.sandbox import disk
from runner.sandbox.data import can_overlay, make_overlay
from runner.sandbox.probe import availability
from tests.confined import Box, box
from tests.conftest import require

pytestmark = pytest.mark.integration

CHANGE = """
import os, sys
os.chdir(sys.argv[1])
before = sorted(os.listdir("."))
open("train.jsonl", "a").write("mine\\n")
open("new", "w").write("new")
os.unlink("inner/eval.jsonl")
os.chmod("train.jsonl", 0o600)
print(before, sorted(os.listdir(".")), open("train.jsonl").read().split(), os.listdir("inner"))
"""
ASK = """
import json, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from runner.sandbox.data import can_overlay
from runner.sandbox.machine import look
print(json.dumps([can_overlay(Path(path), look()) for path in sys.argv[2:]]))
"""


@pytest.fixture
def confined() -> Iterator[Box]:
    with box("namespaces", "ordinary") as confined:
        require(availability("namespaces").available, "bubblewrap and user namespaces")
        require("\toverlay\n" in Path("/proc/filesystems").read_text(), "the file system overlay")
        data = confined.folder.parent / "data"
        (data / "inner").mkdir(parents=True)
        (data / "train.jsonl").write_text("one\n")
        (data / "inner" / "eval.jsonl").write_text("two\n")
        own(confined, data)
        yield confined


def own(confined: Box, folder: Path) -> None:
    """Give all of a folder to the caller."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, confined.user, confined.user, follow_symlinks=False)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def asked(confined: Box, *folders: Path) -> list[bool]:
    """Whether the caller, outside of any sandbox, finds that folders can be overlays."""
    outside = Box("off", confined.caller, confined.folder, confined.user)
    sources = str(Path(__file__).parents[2])
    paths = json.dumps([sources, *(path for path in sys.path if "site-packages" in path)])
    answer: list[bool] = json.loads(outside.python(ASK, paths, *map(str, folders), readable=[sources, sys.prefix]))
    return answer


def test_what_a_worker_writes_is_its_own_and_the_folder_stays_as_it_was(confined: Box) -> None:
    data = confined.folder.parent / "data"
    before = contents(data)
    for number in range(2):
        # each worker has its own
        worker = confined.folder.parent / f"worker-{number}"
        overlay = make_overlay(data, worker)
        own(confined, worker)
        said = confined.python(CHANGE, overlay.target, overlay=overlay)
        assert said == "['inner', 'train.jsonl'] ['inner', 'new', 'train.jsonl'] ['one', 'mine'] []"
        assert contents(data) == before
        disk.remove(str(worker))
        assert not worker.exists()


def test_a_worker_sees_neither_where_its_writes_land_nor_the_folder_itself(confined: Box) -> None:
    worker = confined.folder.parent / "worker"
    overlay = make_overlay(confined.folder.parent / "data", worker)
    own(confined, worker)
    code = "import os, sys; print(*(os.path.exists(path) for path in sys.argv[1:]))"
    assert confined.python(code, overlay.target, overlay.written, overlay.lower, overlay=overlay) == "True False False"
    disk.remove(str(worker))


def test_an_ordinary_callers_own_folder_can_be_an_overlay(confined: Box) -> None:
    data = confined.folder.parent / "data"
    before = contents(data)
    empty = confined.folder.parent / "empty, with: what separates\\options"
    empty.mkdir()
    own(confined, empty)
    (data / "link").symlink_to("inner/eval.jsonl")
    own(confined, data)
    assert asked(confined, data, empty) == [True, True]
    (data / "link").unlink()
    assert contents(data) == before
    for path in (data / "train.jsonl", data / "inner" / "eval.jsonl"):
        os.truncate(path, 2 * 1024**2)
    assert asked(confined, data) == [True]
    assert sorted(path.name for path in data.iterdir()) == ["inner", "train.jsonl"]


@pytest.mark.parametrize(
    "what", ["a link that leads outside", "an absolute link", "a file that cannot be written", "somebody else's file"]
)
def test_what_an_overlay_would_not_show_as_a_copy_does_is_copied(what: str, confined: Box) -> None:
    data = confined.folder.parent / "data"
    match what:
        case "a link that leads outside":
            (data / "link").symlink_to("../../somewhere")
        case "an absolute link":
            (data / "link").symlink_to(data / "train.jsonl")
        case "a file that cannot be written":
            (data / "train.jsonl").chmod(0o400)
        case _:
            require(os.geteuid() == 0, "root")
    own(confined, data)
    if what == "somebody else's file":
        os.chown(data / "inner" / "eval.jsonl", 0, 0)
    assert asked(confined, data) == [False]


def test_root_and_what_is_no_folder_have_none(confined: Box, tmp_path: Path) -> None:
    machine = confined.machine
    (tmp_path / "file").touch()
    assert not can_overlay(tmp_path / "nothing", machine)
    assert not can_overlay(tmp_path / "file", machine)
    assert not can_overlay(tmp_path, replace(machine, uid=0))
