"""Text from outside made safe: to cross a channel, which bounds it, and to show, where nothing in it may act.

Nothing that is shown can move the cursor, change colours or reorder a line. This file is shipped into the worker, so it
needs nothing but the standard library.
"""

from __future__ import annotations

import json
import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What a terminal may take for a command, or that reorders or hides text, and that JSON leaves as it is."""


def bounded(text: str, limit: int) -> str:
    """Shorten text to `limit` characters, keeping both ends, and make it valid UTF-8."""
    if type(text) is not str:
        # numpy's strings and the like are no msgpack text, and a subclass may answer as it likes below
        text = str.__str__(text)
    if len(text) > limit:
        mark = f"… {len(text) - limit} characters left out …"
        half = max(0, (limit - len(mark)) // 2)
        text = (text[:half] + mark + text[len(text) - half :])[:limit] if half else text[:limit]
    try:
        text.encode()
    except UnicodeEncodeError:
        # a lone surrogate cannot cross; show it as an escape rather than lose the whole text
        text = text.encode("utf-8", "backslashreplace").decode()[:limit]
    return text


def printable(text: str) -> str:
    """Replace control and formatting characters by visible escapes; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escape(c) for c in text)


def one_line(text: str, limit: int = 200) -> str:
    """Make text printable and fit one line of at most `limit` characters."""
    text = " ".join(printable(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable_json(data: bytes) -> bytes:
    """Escape in JSON text the control and formatting characters that JSON lets pass; it means the same afterwards."""
    text = data.decode()
    safe = _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return data if safe is text else safe.encode()


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
