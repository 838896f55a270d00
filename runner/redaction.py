"""Takes secrets out of text: every header value that was ever handed to a worker, wherever it shows up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

MARK: Final = "[redacted]"
MIN_CHARS: Final = 6
"""Shorter values (`1`, `true`, a region name) are no secrets, and taking them out would ruin ordinary text."""

SCHEMES: Final = ("bearer ", "basic ", "token ")
INDEX_CHARS: Final = 6

V = TypeVar("V")


class Redactor:
    """Learns secret values and removes them from text.

    Values are looked up by their first characters, so that thousands of short-lived tokens stay cheap.
    """

    def __init__(self) -> None:
        self._by_start: dict[str, list[str]] = {}
        self._known: set[str] = set()

    def learn(self, value: str) -> None:
        """Remember a header value; of one with an authorization scheme, what follows the scheme."""
        for scheme in SCHEMES:
            credential = value[len(scheme) :].strip()
            if value.lower().startswith(scheme) and len(credential) >= MIN_CHARS:
                value = credential
                break
        if len(value) < MIN_CHARS or value in self._known:
            return
        self._known.add(value)
        self._by_start.setdefault(value[:INDEX_CHARS], []).append(value)

    def clean(self, text: str) -> str:
        """Return the text with every known value replaced by a mark."""
        found = [
            value for start, values in self._by_start.items() if start in text for value in values if value in text
        ]
        if not found:
            return text
        # one value may be part of another, or overlap it: all are looked for before any is taken out
        pieces: list[str] = []
        end = 0
        for begin, stop in sorted(span for value in found for span in _spans(text, value)):
            if begin >= end:
                pieces += [text[end:begin], MARK]
            end = max(end, stop)
        return "".join([*pieces, text[end:]])

    def clean_json(self, value: V) -> V:
        """Return a decoded JSON value with every text in it clean, names of members included.

        Raises:
            RecursionError: it is nested too deeply.
        """
        return self._clean_any(value) if self._known else value  # type: ignore[return-value]  # same shape

    def _clean_any(self, value: object) -> object:
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, list):
            return [self._clean_any(item) for item in value]
        if isinstance(value, Mapping):
            return {self.clean(name): self._clean_any(item) for name, item in value.items()}
        return value


def _spans(text: str, value: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    begin = text.find(value)
    while begin >= 0:
        stop = begin + len(value)
        if spans and begin < spans[-1][1]:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((begin, stop))
        begin = text.find(value, begin + 1)
    return spans
