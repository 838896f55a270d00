"""Text from outside made safe to show: nothing in it can move the cursor, change colours or reorder a line."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace control and formatting characters by visible escapes; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escape(c) for c in text)


def one_line(text: str, limit: int = 200) -> str:
    """Make text printable and fit one line of at most `limit` characters."""
    text = " ".join(printable(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
