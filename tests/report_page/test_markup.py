"""Elements: text in them is text, whatever it is."""

from __future__ import annotations

from runner.report.page.markup import Markup, element, escaped, fragment


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "<b>", element("b", "1 & 2")) == "<p>&lt;b&gt;<b>1 &amp; 2</b></p>"
    assert fragment("<", Markup("<br>"), None, 3, ["a", ("b", ["&"])]) == "&lt;<br>3ab&amp;"


def test_attributes_cannot_be_left() -> None:
    made = element("a", title='" onclick="x', data_at=0, class_="c", hidden=True, open=False, role=None)
    assert made == '<a title="&quot; onclick=&quot;x" data-at="0" class="c" hidden></a>'


def test_an_element_without_content_has_no_end() -> None:
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_cannot_be_seen_is_shown_as_an_escape() -> None:
    assert escaped("a\x00b\u202ec\nd\te") == "a\\x00b\\u202ec\nd\te"


def test_joining_markup_with_text_gives_text_again() -> None:
    # so that nothing is taken for markup because a part of it was
    assert element("p", element("b") + "<i>") == "<p>&lt;b&gt;&lt;/b&gt;&lt;i&gt;</p>"
