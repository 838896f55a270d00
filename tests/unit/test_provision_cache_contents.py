"""What a venv consists of, and what is found to have changed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.provision.cache import discard
from runner.provision.contents import Contents, changes, record

SITE = "lib/python3.12/site-packages"


def row(path: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text)}\n"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A folder laid out like a venv, with one package that records all of its files but one."""
    root = tmp_path / "venv"
    site = root / SITE
    texts = {"pack/__init__.py": "A = 1\n", "pack/data.txt": "some data\n", "../../../bin/pack": "#!/bin/sh\n"}
    rows = "".join(row(path, text) for path, text in texts.items())
    texts |= {"pack-1.0.dist-info/RECORD": rows, "pack/unrecorded.txt": "by nobody\n"}
    for path, text in texts.items():
        file = Path(os.path.normpath(site / path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "bin" / "python").symlink_to("/usr/bin/python3")
    return root


def writable(path: Path) -> None:
    path.parent.chmod(0o755)
    if path.exists():
        path.chmod(0o644)


def change_keeping_size_and_time(path: Path) -> None:
    status = path.stat()
    writable(path)
    path.write_text(path.read_text().swapcase())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove(path: Path) -> None:
    writable(path)
    path.unlink()


def turn_into_link(path: Path) -> None:
    copy = path.parents[4] / "elsewhere.txt" if len(path.parents) > 5 else path.with_name("elsewhere")
    text = path.read_text()
    remove(path)
    copy.parent.chmod(0o755)
    copy.write_text(text)
    path.symlink_to(copy)


def test_untouched_venv_has_no_changes_even_after_its_list_was_stored(venv: Path) -> None:
    contents = record(venv)
    stored = Contents.from_json(json.loads(json.dumps(contents.to_json())))
    assert stored == contents
    assert changes(venv, stored, {}) == []


@pytest.mark.parametrize(
    "path",
    [f"{SITE}/pack/__init__.py", f"{SITE}/pack/data.txt", "bin/pack", f"{SITE}/pack/unrecorded.txt"],
    ids=["module", "data", "script", "file that no package records"],
)
@pytest.mark.parametrize(
    ("act", "said"),
    [(change_keeping_size_and_time, "was changed"), (remove, "is missing")],
    ids=["changed", "removed"],
)
def test_change_is_found_whatever_its_size_and_time_say(
    venv: Path, path: str, act: Callable[[Path], None], said: str
) -> None:
    contents = record(venv)
    act(venv / path)
    assert changes(venv, contents, {}) == [f"{path} {said}"]


def test_record_that_was_changed_along_with_a_file_is_not_believed(venv: Path) -> None:
    contents = record(venv)
    file, listing = venv / SITE / "pack/data.txt", venv / SITE / "pack-1.0.dist-info/RECORD"
    change_keeping_size_and_time(file)
    writable(listing)
    listing.write_text(row("pack/__init__.py", "A = 1\n") + row("pack/data.txt", file.read_text()))
    assert f"{SITE}/pack-1.0.dist-info/RECORD was changed" in changes(venv, contents, {})


def test_file_that_became_a_link_to_the_same_content_is_found(venv: Path) -> None:
    contents = record(venv)
    turn_into_link(venv / SITE / "pack/data.txt")
    assert f"{SITE}/pack/data.txt was changed" in changes(venv, contents, {})


def test_everybody_may_read_a_finished_venv_and_nobody_write_it_whatever_the_installers_cache_allowed(
    venv: Path,
) -> None:
    (venv / SITE / "pack/data.txt").chmod(0o600)
    (venv / "bin/pack").chmod(0o700)
    (venv / SITE / "pack").chmod(0o700)
    record(venv)
    modes = {path: stat.S_IMODE((venv / path).stat().st_mode) for path in ("bin/pack", f"{SITE}/pack")}
    assert modes == {"bin/pack": 0o555, f"{SITE}/pack": 0o555}
    assert stat.S_IMODE((venv / SITE / "pack/data.txt").stat().st_mode) == 0o444


def test_link_to_another_interpreter_is_found(venv: Path) -> None:
    contents = record(venv)
    (venv / "bin").chmod(0o755)
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to("/tmp/other")
    assert changes(venv, contents, {}) == ["bin/python is not the link it was"]


def test_file_that_was_added_is_found_unless_it_is_known_to_have_been_compiled(venv: Path) -> None:
    contents = record(venv)
    added = venv / SITE / "sitecustomize.py"
    writable(added)
    added.write_text("evil = 1\n")
    compiled = f"{SITE}/pack/__pycache__/__init__.cpython-312.pyc"
    writable(venv / SITE / "pack/__init__.py")
    (venv / compiled).parent.mkdir()
    (venv / compiled).write_bytes(b"code")
    digest = hashlib.sha256(b"code").hexdigest()
    assert changes(venv, contents, {compiled: digest}) == [f"{SITE}/sitecustomize.py was added"]
    (venv / compiled).write_bytes(b"other code")
    assert f"{compiled} was changed" in changes(venv, contents, {compiled: digest})


def test_package_whose_record_is_wrong_about_a_size_is_believed_as_it_was_installed(venv: Path) -> None:
    file = venv / SITE / "pack/data.txt"
    file.write_text("other data than its record says\n")
    contents = record(venv)
    assert changes(venv, contents, {}) == []
    change_keeping_size_and_time(file)
    assert changes(venv, contents, {}) == [f"{SITE}/pack/data.txt was changed"]


def test_nothing_of_a_finished_venv_is_writable_by_its_modes_and_it_can_be_removed(venv: Path) -> None:
    record(venv)
    for path in [venv, *venv.rglob("*")]:
        if not path.is_symlink():
            assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH), path
    discard(venv)
    assert not venv.exists()


@pytest.mark.parametrize("content", [None, [], {}, {"format": 2}, {"format": 1, "files": {"a": 1}}])
def test_list_of_another_form_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match=r"format|contents"):
        Contents.from_json(content)
