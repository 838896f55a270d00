"""Nothing that is shown can move a cursor, change colours or reorder a line."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from runner.report.text import one_line, printable


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
