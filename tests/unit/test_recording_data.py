"""Digests of data files: what belongs to a dataset is looked at, and what has changed since is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.limits import Limits
from runner.recording.data import check_data, data_facts, still


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_files_are_known_by_their_path_size_and_digest(tmp_path: Path) -> None:
    root = made(tmp_path, {"train.jsonl": "abc", "deep/er/x": ""})
    facts = data_facts(root, limits=Limits())
    assert list(facts) == ["train.jsonl", "deep/er/x"]
    assert facts["train.jsonl"].size == 3
    assert facts["train.jsonl"].sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    check_data(root, facts)


def test_what_belongs_to_no_dataset_is_not_looked_at(tmp_path: Path) -> None:
    root = made(
        tmp_path,
        {
            "data.jsonl": "1",
            ".git/index": "1",
            "__pycache__/a.pyc": "1",
            "run/record.json": "{}",
            "run/outcomes.jsonl": "",
            "run/artifact/env-cls.pkl": "1",
            "bundle/env-cls.pkl": "1",
            "bundle/env-metadata.json": "1",
            "bundle/notes.txt": "1",
            "other/record.json": "{}",
        },
    )
    assert list(data_facts(root, limits=Limits())) == ["data.jsonl", "bundle/notes.txt", "other/record.json"]


def test_files_that_changed_are_named_with_how(tmp_path: Path) -> None:
    root = made(tmp_path, dict.fromkeys("abcd", "1"))
    facts = data_facts(root, limits=Limits())
    (root / "a").write_text("2")
    (root / "b").write_text("22")
    (root / "c").unlink()
    with pytest.raises(UsageError, match=r"recorded: a \(changed\), b \(1 bytes then, 2 now\), c \(missing\)\."):
        check_data(root, facts)


def test_of_many_changes_some_are_named(tmp_path: Path) -> None:
    root = made(tmp_path, {f"{number:02}": "1" for number in range(20)})
    facts = data_facts(root, limits=Limits())
    for path in root.iterdir():
        path.unlink()
    with pytest.raises(UsageError, match=r"04 \(missing\) and 15 more\."):
        check_data(root, facts)


def test_a_file_that_was_added_is_no_change(tmp_path: Path) -> None:
    root = made(tmp_path, {"a": "1"})
    facts = data_facts(root, limits=Limits())
    made(root, {"report.json": "{}"})
    check_data(root, facts)


def test_links_are_followed_but_not_back_up(tmp_path: Path) -> None:
    root = made(tmp_path / "root", {"inner/a": "1"})
    made(tmp_path / "elsewhere", {"b": "2"})
    (root / "inner" / "up").symlink_to(root)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "nowhere").symlink_to(tmp_path / "none")
    assert sorted(data_facts(root, limits=Limits())) == ["inner/a", "link/b"]


def test_names_of_any_bytes_and_files_of_any_kind(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_text("1")
    os.mkfifo(tmp_path / "pipe")
    facts = data_facts(tmp_path, limits=Limits())
    assert list(facts) == ["\\xff"]
    check_data(tmp_path, facts)


@pytest.mark.parametrize(
    ("limits", "text"), [(Limits(data_files=2), "more than 2 files"), (Limits(data_bytes=2), "more than 2 bytes")]
)
def test_a_folder_that_holds_too_much_is_refused(tmp_path: Path, limits: Limits, text: str) -> None:
    made(tmp_path, dict.fromkeys("abc", "1"))
    with pytest.raises(UsageError, match=text):
        data_facts(tmp_path, limits=limits)


def test_what_the_run_itself_writes_is_no_data(tmp_path: Path) -> None:
    made(tmp_path, {"data": "1", "report.json": "1", "out.txt": "", "err.txt": ""})
    code = (
        "from pathlib import Path; from runner.limits import Limits; from runner.recording.data import data_facts\n"
        "found = list(data_facts(Path(), limits=Limits(), leave_out=[Path('report.json'), Path('none')]))\n"
        "print(found, flush=True)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (tmp_path / "out.txt").open("w") as out, (tmp_path / "err.txt").open("w") as error:
        command = [sys.executable, "-c", code]
        assert subprocess.run(command, cwd=tmp_path, env=environment, stdout=out, stderr=error).returncode == 0
    assert (tmp_path / "out.txt").read_text() == "['data']\n"


def test_what_is_written_meanwhile_is_left_out(tmp_path: Path) -> None:
    made(tmp_path, {"data": "1", "log": "1", "gone": "1"})
    facts = data_facts(tmp_path, limits=Limits())
    now = time.time()
    for name in facts:
        os.utime(tmp_path / name, (now, now - 60))
    os.utime(tmp_path / "log", (now, now + 1))
    (tmp_path / "gone").unlink()
    assert list(still(tmp_path, facts, since=now)) == ["data"]
