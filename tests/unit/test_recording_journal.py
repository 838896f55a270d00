"""Journals: what was written is there, a torn end is not, and a full disk is told."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runner.errors import UsageError
from runner.recording.journal import Journal, Lines


class Entry(msgspec.Struct, frozen=True):
    number: int
    text: str = ""


def written(path: Path, *entries: Entry) -> None:
    journal = Journal(path)
    for entry in entries:
        journal.append(entry)
    assert journal.failure is None
    journal.close()


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    entries = [Entry(1, "line\nbreak"), Entry(2, "\u2028 é"), Entry(3, "x" * 3_000_000), Entry(4)]
    written(path, *entries[:2])
    written(path, *entries[2:])
    assert list(Lines(path, Entry)) == entries
    assert [Lines(path, Entry).at(place) for place, _ in Lines(path, Entry).placed()] == entries
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_journal_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert list(Lines(tmp_path / "none", Entry)) == []


@pytest.mark.parametrize("torn", [b"{", b'{"number":3,"text":"no end"}', b"x" * 2_500_000, b"\0\xff"])
def test_a_torn_last_line_is_not_read_and_is_gone_before_more_is_appended(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "j"
    written(path, Entry(1), Entry(2))
    with path.open("ab") as file:
        file.write(torn)
    whole = path.stat().st_size - len(torn)
    assert list(Lines(path, Entry)) == [Entry(1), Entry(2)]
    written(path, Entry(4))
    assert list(Lines(path, Entry)) == [Entry(1), Entry(2), Entry(4)]
    assert path.stat().st_size == whole + len(b'{"number":4,"text":""}\n')


def test_a_file_that_is_one_torn_line_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"number"')
    written(path, Entry(1))
    assert path.read_bytes() == b'{"number":1,"text":""}\n'


@pytest.mark.parametrize("line", [b"{}", b'{"number":"1"}', b"[", b"\xff", b"", b"[" * 100_000])
def test_a_line_that_is_broken_before_the_end_is_an_error_that_says_where(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b'{"number":1}\n' + line + b'\n{"number":2}\n')
    with pytest.raises(UsageError, match=r"calls\.jsonl cannot be read: byte 13: "):
        list(Lines(path, Entry))


def test_fields_of_a_later_release_are_no_concern(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"number":1,"later":{"a":[1]}}\n')
    assert list(Lines(path, Entry)) == [Entry(1)]


def test_each_line_is_one_write_so_that_a_kill_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "j"
    code = (
        "import sys; from pathlib import Path; import msgspec; from runner.recording.journal import Journal\n"
        "E = msgspec.defstruct('E', [('number', int), ('text', str)])\n"
        f"j = Journal(Path({str(path)!r})); n = 0\n"
        "while True:\n    j.append(E(n, 'x' * (n % 5000))); n += 1\n"
        "    if n == 100: print('written', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    numbers = [entry.number for entry in Lines(path, Entry)]
    assert len(numbers) >= 100
    assert numbers == list(range(len(numbers)))


def test_where_no_more_can_be_written_nothing_is_torn_and_the_reason_is_told(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    journal = Journal(path)
    journal.append(Entry(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        journal.append(Entry(2, "x" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert journal.failure is not None
    assert "cannot write the record's outcomes.jsonl: File too large." in str(journal.failure)
    journal.append(Entry(3))
    journal.close()
    journal.close()
    assert list(Lines(path, Entry)) == [Entry(1)]


def test_a_link_is_not_followed_to_somebody_elses_file(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"precious")
    (tmp_path / "j").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic"):
        Journal(tmp_path / "j")
    assert (tmp_path / "theirs").read_bytes() == b"precious"
