"""Takes secrets out of text: every secret value that was handed to a worker, wherever it shows up again.

Comes in: headers that are handed out, and text that comes back. Goes out: the text without them. What it cannot find
is a secret that code has changed on purpose (reversed, encoded, a character at a time).
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from runner.limits import PARTIAL_VALUES, REDACTED_VALUES
from runner.redaction.matcher import GRAM, Matcher, Span
from runner.redaction.secret import credentials_of, parts_of_secret, secret_values, spellings

MARK: Final = "[redacted]"

MAX_SEEN: Final = 1_000
"""Headers whose values need not be looked at again; more than a run has at a time."""
EDGE_CHARS: Final = 4_096
"""How far from a cut a piece of a value is looked for: longer than all but the oddest tokens."""
CUT_CHARS: Final = len("… 1 bytes left out …")
"""A text that was shortened is at least as long."""
MAX_CUTS: Final = 4
"""Looked at in one text: an honest one was shortened once or twice, and each costs a look at many values."""
_CUT: Final = re.compile(r"\n?… \d+ (?:characters|bytes) left out …\n?")
"""Where a text was shortened by the worker's own part or by the caller's."""

V = TypeVar("V")


class Redactor:
    """Learns secret values and removes them from text.

    Values are kept in two generations. When the younger one is full the older one is forgotten, so that what is in
    use stays known and memory stays bounded. What is handed out once and for all is never forgotten.

    Args:
        capacity: Values that one generation holds.
    """

    def __init__(self, capacity: int = REDACTED_VALUES) -> None:
        self._capacity = capacity
        self._young = Matcher()
        self._old = Matcher()
        self._lasting = Matcher()
        self._shortest = CUT_CHARS
        self._seen: set[tuple[str, str]] = set()
        self._recent: deque[str] = deque(maxlen=PARTIAL_VALUES)
        self._lasting_pieces: list[str] = []

    def learn_headers(self, headers: Mapping[str, str]) -> None:
        """Remember what is secret of headers that are handed out."""
        for header in headers.items():
            if header not in self._seen:
                for value in secret_values(*header):
                    self._add(value)
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                if len(header[1]) <= EDGE_CHARS:
                    self._seen.add(header)

    def learn(self, value: str) -> None:
        """Remember one credential; of one with an authorization scheme, what follows the scheme."""
        for secret in credentials_of(value):
            self._add(secret)

    def learn_for_good(self, value: str) -> None:
        """Remember a secret of any form that a worker has all the time: all of it, its lines, a password in a URL."""
        for secret in parts_of_secret(value):
            if len(secret) <= EDGE_CHARS:
                self._lasting_pieces.append(secret)
            self._shortest = min(self._shortest, len(secret))
            for spelled in spellings(secret):
                self._lasting.add(spelled)

    def clean(self, text: str) -> str:
        """Return the text with every known value replaced by a mark."""
        if len(text) < self._shortest:
            # reasons, names of rewards, levels: most texts there are
            return text
        spans = self._spans(text)
        return _without(text, spans) if spans else text

    def clean_seam(self, before: str, after: str) -> tuple[str, str]:
        """Return two clean texts, one of which may go on where the other ends, without a value that stands in both."""
        if not self.knows_any:
            return before, after
        start = max(0, len(before) - EDGE_CHARS)
        seam = len(before) - start
        spans = self._spans(before[start:] + after[:EDGE_CHARS])
        across = [(begin, end) for begin, end in spans if begin < seam < end]
        if not across:
            return before, after
        begin, end = min(begin for begin, _ in across), max(end for _, end in across)
        return before[: start + begin] + MARK, MARK + after[end - seam :]

    def clean_json(self, value: V) -> V:
        """Return a decoded JSON value with every text in it clean, names of members included.

        Raises:
            RecursionError: it is nested too deeply.
        """
        return self._clean_any(value) if self.knows_any else value  # type: ignore[return-value]  # same shape

    @property
    def knows_any(self) -> bool:
        """Whether there is anything to look for; while not, every text is clean."""
        return bool(len(self._young) or len(self._old) or len(self._lasting))

    def _add(self, value: str) -> None:
        if len(value) <= EDGE_CHARS:
            self._recent.append(value)
        # other spellings are no shorter
        self._shortest = min(self._shortest, len(value))
        for spelled in spellings(value):
            self._young.add(spelled)
        if len(self._young) >= self._capacity:
            self._old, self._young = self._young, Matcher()
            # whatever is handed out again has to enter the new generation
            self._seen.clear()

    def _spans(self, text: str) -> list[Span]:
        spans = self._young.spans(text) if len(self._young) else []
        for matcher in (self._old, self._lasting):
            if len(matcher):
                spans += matcher.spans(text)
        if "left out …" in text and (self._recent or self._lasting_pieces):
            spans += self._pieces(text)
        return spans

    def _pieces(self, text: str) -> Iterator[Span]:
        """Find what is left of a value where a text was cut: its beginning before the cut, its end after it."""
        for cut in itertools.islice(_CUT.finditer(text), MAX_CUTS):
            before = text[max(0, cut.start() - EDGE_CHARS) : cut.start()]
            after = text[cut.end() : cut.end() + EDGE_CHARS]
            for value in itertools.chain(self._lasting_pieces, self._recent):
                if (kept := _kept_beginning(before, value)) >= GRAM:
                    yield cut.start() - kept, cut.start()
                if (kept := _kept_end(after, value)) >= GRAM:
                    yield cut.end(), cut.end() + kept

    def _clean_any(self, value: object) -> object:
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, list):
            return [self._clean_any(item) for item in value]
        if isinstance(value, Mapping):
            return {self.clean(name): self._clean_any(item) for name, item in value.items()}
        return value


def _without(text: str, spans: list[Span]) -> str:
    # one value may be part of another, or overlap it: nothing of either is left
    pieces: list[str] = []
    end = 0
    for begin, stop in sorted(spans):
        if begin >= end:
            pieces += [text[end:begin], MARK]
        end = max(end, stop)
    return "".join([*pieces, text[end:]])


def _kept_beginning(text: str, value: str) -> int:
    """How many of the value's first characters the text ends with; all of them are not a piece of it."""
    at = text.find(value[:GRAM])
    while at >= 0:
        if len(text) - at < len(value) and value.startswith(text[at:]):
            return len(text) - at
        at = text.find(value[:GRAM], at + 1)
    return 0


def _kept_end(text: str, value: str) -> int:
    """How many of the value's last characters the text begins with."""
    at = value.find(text[:GRAM]) if len(text) >= GRAM else -1
    while at >= 0:
        if text.startswith(value[at:]):
            return len(value) - at
        at = value.find(text[:GRAM], at + 1)
    return 0
