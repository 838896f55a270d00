"""Options are checked when they are made, and what they hold in confidence is never shown."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from runner import ExtraIndex, ProvisionOptions
from runner.errors import UsageError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"installer": "conda"}, "installer 'conda' is not known"),
        ({"prerelease": "allow"}, "prerelease mode 'allow' is not known"),
        ({"index_url": "packages.example"}, "not the address of a package index"),
        ({"find_links": ("/nonexistent",)}, "there is no such file or folder"),
        ({"find_links": ("https://me:word@host.example/",)}, "holds a user name or a password"),
        (
            {
                "index_url": "file:///srv/simple",
                "extra_indexes": (ExtraIndex(names=("a",), url="https://host.example/simple"),),
            },
            "cannot be combined",
        ),
    ],
    ids=["installer", "prerelease", "index", "links", "links with credentials", "file index"],
)
def test_value_that_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        ProvisionOptions(**given)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    "given",
    [{"find_links": "folder"}, {"extra_indexes": []}, {"exclude_newer": "2026-01-31"}, {"exclude_newer": datetime.min}],
    ids=str,
)
def test_value_of_another_type_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ProvisionOptions(**given)


def test_address_of_an_index_is_never_shown() -> None:
    secret = "https://me:word-zqx@host.example/simple"
    options = ProvisionOptions(index_url=secret, extra_indexes=(ExtraIndex(names=("a",), url=secret),))
    assert "zqx" not in f"{options!r} {options} {options.indexes()!r} {options.key_inputs()!r}"


def test_day_counts_to_its_end() -> None:
    assert ProvisionOptions(exclude_newer=date(2026, 1, 31)).cutoff == "2026-02-01T00:00:00Z"
    assert ProvisionOptions().cutoff is None


@pytest.mark.parametrize("text", ["a", "=https://h.example", "a=", "a b=https://h.example", ",=https://h.example"])
def test_extra_index_without_packages_or_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="extra index"):
        ExtraIndex.parse(text)


def test_extra_index_is_read_with_its_packages() -> None:
    extra = ExtraIndex.parse("My_Kit, other.kit=https://h.example/simple?a=b")
    assert (extra.names, extra.url) == (("my-kit", "other-kit"), "https://h.example/simple?a=b")


def test_what_a_folder_offers_is_part_of_the_key(tmp_path: Path) -> None:
    options = ProvisionOptions(find_links=(str(tmp_path),))
    before = options.key_inputs()
    (tmp_path / "notes.txt").write_text("no package")
    assert options.key_inputs() == before
    (tmp_path / "a-1-py3-none-any.whl").write_text("x")
    assert options.key_inputs() != before
    assert options.link_folders == (tmp_path,)


def test_packages_of_the_runner_itself_do_not_follow_a_bundles_lock_and_day() -> None:
    options = ProvisionOptions(
        index_url="https://h.example/simple", lock=Path("x"), locked=True, exclude_newer=date(2020, 1, 1), offline=True
    )
    assert options.for_tools() == ProvisionOptions(index_url="https://h.example/simple", offline=True)
