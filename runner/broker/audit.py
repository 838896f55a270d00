"""The trail of every header request that was answered or refused, in bounded memory. Holds no value of any header."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from runner.broker.address import address_or_none
from runner.errors import CredentialSourceError, HeaderLimitError, HeadersRefusedError
from runner.limits import AUDIT_ENTRIES, AUDIT_PLACES, MAX_AUDIT_CHARS, MAX_TEXT_CHARS
from runner.protocol import HeaderRequest
from runner.text import bounded

Verdict = Literal["answered", "refused", "limited", "failed"]
"""Headers were handed out · the policy does not cover the request · a limit · the credential source failed."""

_Row = tuple[float, str | None, str, str, str, Verdict, str]
"""An entry's fields in order; most entries are pushed out before anybody looks at them."""

MAX_FRESH: Final = 200
"""Requests that are put in order together."""

OTHER: Final = "(other)"
NO_URL: Final = "(no URL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One answered or refused header request. Holds no value of any header.

    Args:
        at: Seconds since the epoch.
        binding: Name of the binding, or `None` for a rollout's own auth.
        rollout_id: The rollout whose own auth was asked for, else the label the request carried.
        base_url: Where the request goes, as the worker said.
        model: Which model, as the worker said.
        verdict: What became of it.
        reason: Why not; empty when answered, `without any header` when the source gave none.
    """

    at: float
    binding: str | None
    rollout_id: str
    base_url: str
    model: str
    verdict: Verdict
    reason: str = ""

    @property
    def answered(self) -> bool:
        """Whether headers were handed out."""
        return self.verdict == "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCount:
    """How often requests for one place under one binding had one verdict.

    Args:
        binding: Name of the binding, or `None` for rollouts' own auth.
        origin: Scheme, host and port of the requests, `(no URL)`, or `(other)` beyond the number that is told apart.
        verdict: What became of them.
        count: How many there were.
    """

    binding: str | None
    origin: str
    verdict: Verdict
    count: int


class AuditTrail:
    """The newest entries of each verdict, and counts of all of them.

    Args:
        clean: Takes secrets out of text; the worker may put a value it was given before into its requests.
    """

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._entries: dict[Verdict, deque[_Row]] = {}
        self._counts: Counter[tuple[str | None, str, Verdict]] = Counter()
        self._fresh: list[tuple[float, HeaderRequest, Verdict, str]] = []

    def note(self, request: HeaderRequest, verdict: Verdict, reason: str = "") -> None:
        """Record what became of a request; `reason` is clean already."""
        # a worker waits for the answer meanwhile, so that only what is needed for later is done now
        self._fresh.append((time.time(), request, verdict, reason))
        chars = len(request.base_url) + len(request.model) + len(request.rollout_id)
        if len(self._fresh) >= MAX_FRESH or chars > MAX_AUDIT_CHARS:
            self._take_in()

    def refuse(self, request: HeaderRequest, refusal: HeadersRefusedError) -> str:
        """Record that a request was refused; return what whoever asked may be told."""
        verdict: Verdict = "refused"
        if isinstance(refusal, HeaderLimitError):
            verdict = "limited"
        elif isinstance(refusal, CredentialSourceError):
            verdict = "failed"
        text = bounded(self._clean(f"{refusal}"), MAX_TEXT_CHARS)
        # what the source's own error says stays here
        self.note(request, verdict, text if not refusal.detail else self._clean(f"{refusal.message} {refusal.detail}"))
        return text

    def _take_in(self) -> None:
        fresh, self._fresh = self._fresh, []
        for at, request, verdict, reason in fresh:
            self._record(at, request, verdict, reason)

    def _record(self, at: float, request: HeaderRequest, verdict: Verdict, reason: str) -> None:
        binding = request.binding
        label = request.rollout or request.rollout_id if binding is None else request.rollout_id
        url, model, place = request.base_url, request.model, _place(request.base_url)
        if binding is not None or verdict != "answered":
            # the worker's own words; all others have been compared with the caller's
            binding, label, url, model, place = self._cleaned(binding, label, url, model, place)
        entries = self._entries.get(verdict)
        if entries is None:
            entries = self._entries[verdict] = deque(maxlen=AUDIT_ENTRIES)
        entries.append((at, binding, _short(label), _short(url), _short(model), verdict, _short(reason)))
        key = (binding, place, verdict)
        if key not in self._counts and len(self._counts) >= AUDIT_PLACES:
            key = (None, OTHER, verdict)
        self._counts[key] += 1

    def entries(self) -> tuple[AuditEntry, ...]:
        """Return what is kept of all verdicts, in order."""
        self._take_in()
        rows = sorted((row for kept in self._entries.values() for row in kept), key=lambda row: row[0])
        return tuple(
            AuditEntry(
                at=at, binding=binding, rollout_id=label, base_url=url, model=model, verdict=verdict, reason=reason
            )
            for at, binding, label, url, model, verdict, reason in rows
        )

    def counts(self) -> tuple[AuditCount, ...]:
        """Return the counts of all requests there ever were, the most frequent first."""
        self._take_in()
        return tuple(
            AuditCount(binding=binding, origin=origin, verdict=verdict, count=count)
            for (binding, origin, verdict), count in self._counts.most_common()
        )

    def _cleaned(
        self, binding: str | None, label: str, url: str, model: str, place: str
    ) -> tuple[str | None, str, str, str, str]:
        clean = self._clean
        together = "\n".join((binding or "", label, url, model))
        # whole, since a cut may leave a piece of a value; and once for all of them where there is nothing to take out
        if clean(together) != together:
            binding = None if binding is None else clean(binding)
            label, url, model, place = clean(label), clean(url), clean(model), clean(place)
        return None if binding is None else _short(binding), label, url, model, place


def _short(text: str) -> str:
    return text if len(text) <= MAX_AUDIT_CHARS else bounded(text, MAX_AUDIT_CHARS)


@lru_cache(maxsize=256)
def _place(url: str) -> str:
    address = address_or_none(url)
    return NO_URL if address is None else address.origin
