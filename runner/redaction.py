"""Takes secrets out of text: every header value that was ever handed to a worker, wherever it shows up again."""

from __future__ import annotations

from typing import Final

MARK: Final = "[redacted]"
MIN_CHARS: Final = 6
"""Shorter values (`1`, `true`, a region name) are no secrets, and taking them out would ruin ordinary text."""

SCHEMES: Final = ("bearer ", "basic ", "token ")
INDEX_CHARS: Final = 6


class Redactor:
    """Learns secret values and removes them from text.

    Values are looked up by their first characters, so that thousands of short-lived tokens stay cheap.
    """

    def __init__(self) -> None:
        self._by_start: dict[str, list[str]] = {}
        self._known: set[str] = set()

    def learn(self, value: str) -> None:
        """Remember a header value, and the part after an authorization scheme on its own."""
        for scheme in SCHEMES:
            if value.lower().startswith(scheme):
                self._add(value[len(scheme) :].strip())
        self._add(value)

    def _add(self, value: str) -> None:
        if len(value) < MIN_CHARS or value in self._known:
            return
        self._known.add(value)
        group = self._by_start.setdefault(value[:INDEX_CHARS], [])
        group.append(value)
        # the longest first: one value may be the beginning of another
        group.sort(key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Return the text with every known value replaced by a mark."""
        if not self._known:
            return text
        for start, values in self._by_start.items():
            if start in text:
                for value in values:
                    if value in text:
                        text = text.replace(value, MARK)
        return text
