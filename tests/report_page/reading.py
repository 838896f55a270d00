"""A page taken apart again, by a parser that knows nothing of how it was made."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"br", "input", "link", "meta"})


@dataclass
class Found:
    """What is in a page.

    Args:
        shape: Tags with the names of their attributes, in order.
        attributes: All attributes, by name, with their values.
        text: What can be read without a script.
        blocks: Style and script elements, with their attributes.
    """

    shape: list[tuple[str, ...]] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    blocks: list[tuple[str, dict[str, str], str]] = field(default_factory=list)

    def block(self, name: str) -> str:
        """Return the content of a script element that has a name."""
        [found] = [text for _, attributes, text in self.blocks if attributes.get("id") == name]
        return found

    def scripts(self) -> list[str]:
        """Return what is a script to a browser."""
        return [text for tag, attributes, text in self.blocks if tag == "script" and "type" not in attributes]

    def styles(self) -> list[str]:
        """Return the styles."""
        return [text for tag, _, text in self.blocks if tag == "style"]

    def table(self) -> Any:
        """Return the table of rollouts."""
        return json.loads(self.block("table"))

    def packed(self) -> list[bytes]:
        """Return the chunks, unpacked: JSON arrays of outcomes."""
        return [
            gzip.decompress(base64.b64decode(text, validate=True))
            for _, attributes, text in self.blocks
            if attributes.get("type") == "application/gzip"
        ]

    def policy(self) -> dict[str, list[str]]:
        """Return the content security policy, by directive."""
        [content] = [value for name, value in self.attributes if name == "content" and "default-src" in value]
        directives = [part.split() for part in content.split(";")]
        return {name: values for name, *values in directives}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = Found()
        self._open: list[str] = []
        self._in: tuple[str, dict[str, str]] | None = None
        self._raw = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.shape.append((tag, *(name for name, _ in attrs)))
        self.found.attributes += [(name, value or "") for name, value in attrs]
        if tag in ("script", "style"):
            self._in, self._raw = (tag, {name: value or "" for name, value in attrs}), ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, "elements are not nested as they should be"
        self.found.shape.append((f"/{tag}",))
        if self._in is not None and tag == self._in[0]:
            self.found.blocks.append((*self._in, self._raw))
            self._in = None

    def handle_data(self, data: str) -> None:
        if self._in is None:
            self.found.text += data
        else:
            self._raw += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def close(self) -> None:
        super().close()
        assert not self._open, "elements are left open"


def read(page: bytes) -> Found:
    """Take a page apart.

    Raises:
        AssertionError: its elements are not properly nested.
    """
    reader = _Reader()
    reader.feed(page.decode())
    reader.close()
    return reader.found
