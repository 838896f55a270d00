"""Nothing that is shown can move a cursor, change colours or reorder a line."""

from __future__ import annotations

import enum
import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.protocol import CallFailed, RemoteFailure, encode
from runner.text import bounded, one_line, printable, printable_json


@given(st.text())
def test_printable_text_holds_nothing_but_printable_characters_newlines_and_tabs(text: str) -> None:
    shown = printable(text)
    assert all(c in "\n\t" or c.isprintable() for c in shown)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in shown if c not in "\n\t")


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_one_line_is_one_line_of_at_most_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_ordinary_text_stays_as_it_is() -> None:
    assert printable("größer als 3 · 漢字 🙂\n\tindented") == "größer als 3 · 漢字 🙂\n\tindented"


def test_escapes_name_the_character() -> None:
    assert printable("\x1b[31m\x9b\u202e\U000e0001\r") == r"\x1b[31m\x9b\u202e\U000e0001\x0d"


def test_one_line_joins_lines_and_marks_a_cut() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("abcdef", 4) == "abc…"


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_json_on_a_terminal_means_the_same_and_holds_no_command(name: str, text: str) -> None:
    data = json.dumps({name: [text]}, ensure_ascii=False).encode()
    safe = printable_json(data)
    assert json.loads(safe) == json.loads(data)
    shown = [char for char in safe.decode() if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")]
    assert not {*shown} & {*"\x1b\x7f\x9b\u061c\u200f\u2028\u202e\u2066\ufeff\U000e0041"}


UNSEEN = "\x7f\x85\x9b\xad\u061c\u200b\u200e\u2028\u202e\u2069\ufeff\ufffb\U000e0041"


@pytest.mark.parametrize("char", [*UNSEEN], ids=ascii)
def test_what_reorders_or_hides_text_is_escaped_in_json(char: str) -> None:
    data = json.dumps([char], ensure_ascii=False).encode()
    assert printable_json(data).isascii()
    assert json.loads(printable_json(data)) == [char]


def test_json_without_such_characters_stays_the_same_object() -> None:
    data = '{"é": "日本 😀\\n"}'.encode()
    assert printable_json(data) is data


# -- texts that cross ------------------------------------------------------------------------------------------


def test_a_shortened_text_keeps_both_ends_and_says_how_much_is_missing() -> None:
    text = bounded("a" * 500 + "b" * 500, 100)
    assert len(text) <= 100
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "900 characters left out" in text


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec=None), max_size=200), st.integers(1, 100))
def test_a_bounded_text_always_fits_and_can_always_cross(text: str, limit: int) -> None:
    short = bounded(text, limit)
    assert len(short) <= limit
    short.encode()
    if len(text) <= limit and short != text:
        assert any("\ud800" <= char <= "\udfff" for char in text)


class Liar(str):
    def __len__(self) -> int:
        return 0

    def __getitem__(self, _: object) -> str:
        raise RuntimeError("asked")

    def encode(self, *_: object) -> bytes:
        raise RuntimeError("asked")


class Reason(enum.StrEnum):
    DONE = "finished"


def test_a_subclass_of_str_is_bounded_as_the_text_it_holds() -> None:
    assert bounded(Liar("x" * 50), 10) == "x" * 10
    assert type(bounded(Liar("short"), 10)) is str
    assert type(bounded(Reason.DONE, 10)) is str
    encode(CallFailed(call=1, failure=RemoteFailure(type=bounded(Liar("T"), 10), message="")))
