"""A lock's text is always the same for the same content, and addresses are changed everywhere or nowhere."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from runner.provision.document import write_lock_text
from runner.provision.index import RELAY_HOST, Indexes
from runner.provision.lock import Lock, from_folders, with_addresses

ODD = 'quote " back \\ line \n del \x7f'
CONTENT: dict[str, Any] = {
    "lock-version": "1.0",
    "environments": ["sys_platform == 'linux'", "sys_platform == 'darwin'"],
    "packages": [
        {
            "name": "a",
            "version": "1.0",
            "wheels": [
                {"url": "https://h.example/a-1.0-py3-none-any.whl", "size": 3, "hashes": {"sha256": "00"}},
                {
                    "url": "https://h.example/a-1.0-py2-none-any.whl",
                    "upload-time": datetime(2026, 1, 31, 12, tzinfo=UTC),
                    "hashes": {"sha256": "11"},
                },
            ],
        },
        {"name": "b", "vcs": {"type": "git", "url": "https://h.example/b", "commit-id": "abc"}, "dependencies": []},
    ],
    "tool": {
        "benchmax": {"format": 1, "day": date(2026, 1, 31), "odd key": 'quote " back \\ line \n del \x7f', "yes": True}
    },
}


def test_text_reads_as_what_was_written() -> None:
    text = write_lock_text(CONTENT, comment="Made here.")
    assert text.startswith("# Made here.\n")
    assert tomllib.loads(text) == CONTENT
    assert write_lock_text(tomllib.loads(text), comment="Made here.") == text
    assert Lock.parse(text.encode()).data == CONTENT


def test_value_that_toml_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        write_lock_text({"a": None})


def test_addresses_are_changed_and_paths_made_whole(tmp_path: Path) -> None:
    data = {"packages": [*CONTENT["packages"], {"name": "c", "archive": {"path": "../c.whl", "hashes": {}}}]}
    changed = with_addresses(data, lambda url: url.replace("h.example", "other.example"), folder=tmp_path / "x")
    text = write_lock_text(changed)
    assert "h.example" not in text
    assert text.count("other.example") == 3
    assert changed["packages"][2]["archive"]["path"] == str(tmp_path / "c.whl")


def test_files_of_a_folder_take_the_place_of_addresses(tmp_path: Path) -> None:
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"x")
    first, second = from_folders(CONTENT, [tmp_path])["packages"][0]["wheels"]
    assert first == {"path": str(tmp_path / "a-1.0-py3-none-any.whl"), "size": 3, "hashes": {"sha256": "00"}}
    assert "url" in second


@pytest.mark.parametrize(
    "url",
    [
        "https://own.example:8443/files/k-1.whl",
        "https://own.example:8443/a%20b/k-1.whl?x=1#sha256=00",
        "https://own.example:8443",
    ],
)
def test_files_that_need_credentials_go_through_the_relay_and_back(url: str) -> None:
    indexes = Indexes.of("https://main.example/simple", [(["k"], "https://me:word@own.example:8443/simple")])
    inward = indexes.inward(url)
    assert RELAY_HOST in inward
    assert "word" not in inward
    assert indexes.outward(f"see {inward} there") == f"see {url if url.count('/') > 2 else url + '/'} there"


def test_files_that_need_none_stay_where_they_are() -> None:
    indexes = Indexes.of("https://main.example/simple", [(["k"], "https://me:word@own.example/simple")])
    for url in ("https://main.example/a-1.whl", "http://own.example/k-1.whl", "https://own.example:444/k-1.whl"):
        assert indexes.inward(url) == url


def test_pages_of_the_relay_stand_for_the_index_of_their_package() -> None:
    indexes = Indexes.of("https://main.example/simple", [(["own-kit"], "https://me:word@own.example/simple/")])
    root = indexes.installer_url
    assert indexes.outward(f"{root}/Own_Kit/") == "https://own.example/simple/Own_Kit/"
    assert indexes.outward(f"{root}/other/") == "https://main.example/simple/other/"
    assert indexes.outward(root) == "https://main.example/simple"


def test_index_without_credentials_is_asked_directly() -> None:
    assert not Indexes.of("https://main.example/simple").needs_relay
    assert Indexes.of("https://main.example/simple").installer_url == "https://main.example/simple"
    assert Indexes.of("https://user@main.example/simple").needs_relay
