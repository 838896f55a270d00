"""HTML made of elements: whatever is not markup already is escaped when it is put in.

There is no other way to text in the page than through here, so nothing that a bundle says can become markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from runner.text import printable

VOID: Final = frozenset({"br", "input", "link", "meta"})
"""Elements without content, which have no end tag."""


class Markup(str):
    """HTML that may stand in a page as it is."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
Attribute = str | int | bool | None


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Make an element.

    Args:
        tag: Its name.
        children: Text, which is escaped, markup, or any number of them; `None` is nothing.
        attributes: As in HTML, with `_` for `-` and one at the end where Python has the word for itself. `True` is an
            attribute without value; `None` and `False` leave it out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{fragment(*children)}</{tag}>")


def fragment(*children: Child) -> Markup:
    """Put children side by side."""
    return Markup("".join(map(_child, children)))


def escaped(text: str) -> Markup:
    """Make text fit to stand anywhere in HTML, with visible escapes for what hides or reorders text."""
    return Markup(html.escape(printable(text)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escaped(child)
    if isinstance(child, int):
        return str(child)
    return fragment(*child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'
