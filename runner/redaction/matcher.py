"""Finds a great many values in a text, in time that grows with the text and hardly with how many values there are.

Of a value only its first characters and a hash are kept. A text is searched for beginnings that are known; where one
stands, what follows is hashed, once for each length that values with this beginning have.
"""

from __future__ import annotations

import re
from typing import Final

from runner.redaction.secret import MIN_CHARS

GRAM: Final = MIN_CHARS
"""Characters of a value that are looked for: no value is shorter."""
HEAD: Final = 256
"""Characters of a value that are compared; what agrees in so many is taken for the value."""
FEW: Final = 24
"""Beginnings that are searched for one by one; with more of them the text is gone through once instead."""
MAX_SPACED: Final = 100
"""Values kept that hold white space everywhere; each of them costs a search of its own."""

Span = tuple[int, int]
_RUN: Final = re.compile(rf"\S{{{GRAM},}}")
_WORD: Final = re.compile(r"\S*")


class Matcher:
    """A set of values of at least `GRAM` characters, and where they stand in a text."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[Span, ...]] = {}
        """By beginning: where it stands in its values, and how many characters of them are compared."""
        self._shared: dict[tuple[Span, ...], tuple[Span, ...]] = {}
        self._heads: set[int] = set()
        self._lengths: dict[int, int] = {}
        self._spaced: dict[str, None] = {}
        self._shortest = HEAD
        self._runs = re.compile(rf"\S{{{HEAD},}}")

    def __len__(self) -> int:
        return len(self._heads) + len(self._spaced)

    def add(self, value: str) -> None:
        """Take in one value; a second time does nothing."""
        # values with a space near their beginning (`Bearer abc`) are known by what comes after it
        run = _RUN.search(value, 0, HEAD)
        if run is None:
            if len(self._spaced) < MAX_SPACED:
                self._spaced[value] = None
            return
        start = run.start()
        gram, head = value[start : start + GRAM], value[:HEAD]
        place = (start, len(head))
        places = self._places.get(gram, ())
        if place not in places:
            places = (*places, place)
            # thousands of tokens are alike in this
            self._places[gram] = self._shared.setdefault(places, places)
        if run.end() - start < self._shortest:
            # most words of a text are shorter than any value, and need not be looked at
            self._shortest = run.end() - start
            self._runs = re.compile(rf"\S{{{self._shortest},}}")
        self._heads.add(hash(head))
        if len(value) > HEAD:
            self._lengths[hash(head)] = max(len(value), self._lengths.get(hash(head), 0))

    def spans(self, text: str) -> list[Span]:
        """Return where values stand in the text, in no order, overlapping ones each."""
        found = [span for value in self._spaced if value in text for span in _occurrences(text, value)]
        for at in self._beginnings(text):
            for start, length in self._places[text[at : at + GRAM]]:
                begin = at - start
                head = text[begin : begin + length] if begin >= 0 else ""
                if len(head) == length and hash(head) in self._heads:
                    found.append((begin, self._end(text, begin, head)))
        return found

    def _beginnings(self, text: str) -> list[int]:
        places = self._places
        if len(places) <= FEW:
            return [begin for gram in places if gram in text for begin, _ in _occurrences(text, gram)]
        return [
            at
            for run in self._runs.finditer(text)
            for at in range(run.start(), run.end() - GRAM + 1)
            if text[at : at + GRAM] in places
        ]

    def _end(self, text: str, begin: int, head: str) -> int:
        end = begin + len(head)
        length = self._lengths.get(hash(head), 0) if len(head) == HEAD else 0
        if not length:
            return end
        word = _WORD.match(text, end, begin + length)
        return word.end() if word is not None else end


def _occurrences(text: str, value: str) -> list[Span]:
    found = []
    begin = text.find(value)
    while begin >= 0:
        found.append((begin, begin + len(value)))
        begin = text.find(value, begin + 1)
    return found
