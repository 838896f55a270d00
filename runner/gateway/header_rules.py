"""Which headers go through the gateway: those that say what is asked and by which program, and what an answer is.

A worker's headers reach a server under the caller's credential. Any other than these could choose who is asked, for
whom, or where a server sends the question on to, so they stay behind; what the caller wants to send, its credential
source can give. A server's headers reach a worker that is not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_SENT: Final = frozenset(
    {
        "accept", "accept-language", "anthropic-beta", "anthropic-version", "content-type", "openai-beta",
        "traceparent", "tracestate", "user-agent", "x-client-request-id", "x-correlation-id", "x-request-id",
    }
)  # fmt: skip
_SENT_PREFIXES: Final = ("x-benchmax-", "x-stainless-")

_ANSWERED: Final = frozenset(
    {"content-type", "request-id", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry"}
)
_ANSWERED_PREFIXES: Final = ("openai-", "x-ratelimit-")


def sendable_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return a client's headers that go on, by lower-case name; of one that is repeated, its values in one line."""
    sent: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if name in _SENT or name.startswith(_SENT_PREFIXES):
            value = raw_value.decode("latin-1")
            sent[name] = f"{sent[name]}, {value}" if name in sent else value
    return sent


def answered_headers(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    """Yield a server's headers that a client is to have: what kind of answer it is, and when to ask again."""
    for raw_name, value in headers:
        name = raw_name.decode("latin-1").lower()
        if name in _ANSWERED or name.startswith(_ANSWERED_PREFIXES):
            yield name, value.decode("latin-1")
