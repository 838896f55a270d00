"""The source of a bundled agent: which files it takes, and its identity."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs.harbor import BundledAgentSource

VECTOR = "sha256:867366e943d694c94b33587ee0afaf68cf0615fc208310c7d67dfb4f74010747"


def test_the_identity_is_that_of_the_published_vector() -> None:
    assert BundledAgentSource.from_files({"b.py": b"2", "a.py": b"1"}).content_id == VECTOR
    assert BundledAgentSource((("b.py", b"2"), ("a.py", b"1"))).content_id == VECTOR


@given(st.dictionaries(st.sampled_from(["a.py", "b/c.py", "b/é.txt", "d"]), st.binary(max_size=9), min_size=1))
def test_equal_files_are_one_source_in_every_order_and_others_are_not(files: dict[str, bytes]) -> None:
    source = BundledAgentSource.from_files(files)
    assert source == BundledAgentSource(tuple(reversed(files.items())))
    assert [path for path, _ in source.files] == sorted(files)
    assert pickle.loads(pickle.dumps(source)) == source
    changed = {**files, "d": files.get("d", b"") + b"x"}
    assert BundledAgentSource.from_files(changed).content_id != source.content_id


def test_the_state_in_a_pickle_is_the_list_of_fields() -> None:
    source: Any = BundledAgentSource.from_files({"a.py": b"1", "b.py": b"2"})
    assert source.__getstate__() == [(("a.py", b"1"), ("b.py", b"2")), VECTOR]


def test_it_is_shown_without_its_content() -> None:
    shown = repr(BundledAgentSource.from_files({"a.py": b"sesame"}))
    assert "sesame" not in shown
    assert "sha256:" in shown


@pytest.mark.parametrize(
    "path", ["", "/a.py", "./a.py", "a//b.py", "a/", "../a.py", "a/../b.py", "a/./b.py", "a\\b.py", "a\0.py", 1]
)
def test_a_path_must_be_relative_and_canonical(path: Any) -> None:
    with pytest.raises(ValueError, match="path"):
        BundledAgentSource.from_files({path: b""})


def test_other_violations_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BundledAgentSource(())
    with pytest.raises(ValueError, match="duplicate"):
        BundledAgentSource((("a.py", b"1"), ("a.py", b"1")))
    with pytest.raises(ValueError, match="path"):
        BundledAgentSource.from_files({"a": b"", "a/b.py": b""})
    text: Any = "text"
    with pytest.raises(TypeError, match="bytes"):
        BundledAgentSource.from_files({"a.py": text})


def test_listed_files_of_a_folder_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.py").write_bytes(b"1")
    (tmp_path / "other.py").write_bytes(b"not listed")
    source = BundledAgentSource.from_directory(tmp_path, files=["deep/a.py"])
    (tmp_path / "deep" / "a.py").write_bytes(b"2")
    assert source.files == (("deep/a.py", b"1"),)


def test_a_folder_may_be_reached_through_a_link_and_its_files_may_not(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "a.py").write_bytes(b"1")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "file.py").symlink_to("deep/a.py")
    (tmp_path / "real" / "folder").symlink_to("deep")
    assert BundledAgentSource.from_directory(tmp_path / "link", files=["deep/a.py"]).files
    for path in ("file.py", "folder/a.py"):
        with pytest.raises(ValueError, match="symlinks"):
            BundledAgentSource.from_directory(tmp_path / "real", files=[path])


@pytest.mark.parametrize(("root", "path"), [("gone", "a.py"), ("file", "a.py"), (".", "gone.py"), (".", "folder")])
def test_what_is_missing_is_refused(tmp_path: Path, root: str, path: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError):
        BundledAgentSource.from_directory(tmp_path / root, files=[path])
    with pytest.raises(ValueError, match="path"):
        BundledAgentSource.from_directory(tmp_path, files=["../a.py"])
