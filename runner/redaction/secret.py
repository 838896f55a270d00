"""What of a header is secret, and how the same secret may be spelled elsewhere.

Comes in: headers as a credential source gave them. Goes out: the texts that must not show up again. A header is
secret by its name (`Authorization`, `X-Api-Key`, `Cookie`), open by its name (`Content-Type`, `User-Agent`), or
judged by the look of its value: what seems drawn at random is secret.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal
from urllib.parse import quote, quote_plus, unquote

MIN_CHARS: Final = 6
"""Shorter values (`1`, `true`, a region's name) are no secrets, and taking them out would ruin ordinary text."""

OPEN_NAMES: Final = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version",
        "baggage", "cache-control", "connection", "content-encoding", "content-length", "content-type", "date", "host",
        "http-referer", "openai-beta", "openai-organization", "openai-project", "origin", "pragma", "referer",
        "traceparent", "tracestate", "user-agent", "x-correlation-id", "x-request-id", "x-title",
    }
)  # fmt: skip
"""Names of headers that hold no credential, and whose values are needed to make sense of a log."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|[-_])(?:assertion|auth|bearer|jwt|pin|pwd|sas|session|sig)(?:$|[-_])"
    r"|authenticat|authoriz|cookie|credential|keys?(?:$|[-_])|passphrase|password|secret|signature|token"
)
_WORDS: Final = re.compile(r"[^\s;,\"']+")
_LONG_CHUNK: Final = re.compile(r"[A-Za-z0-9]{12,}")
_LETTERS_BESIDE_DIGITS: Final = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_ONE_SPELLING: Final = re.compile(r"[A-Za-z0-9._~-]*")
_ONE_PART: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def secret_values(name: str, value: str) -> Iterator[str]:
    """Find what of one header is secret: the credential without its scheme, and the parts of one with parts."""
    kind = _kind(name)
    if kind == "secret":
        yield from credentials_of(value)
    elif kind == "unknown":
        yield from _random_words(value)


def credentials_of(value: str) -> Iterator[str]:
    """Find what is secret of a value that is a credential as a whole, with or without an authorization scheme."""
    value = value.strip(" \t")
    scheme, _, rest = value.partition(" ")
    rest = rest.lstrip(" \t")
    if rest and " " not in rest:
        if scheme.lower() == "basic":
            yield from _user_and_password(rest)
        # a shorter one would be taken out of every word it is part of
        value = rest if len(rest) >= MIN_CHARS else value
    if len(value) >= MIN_CHARS:
        yield value
        if _ONE_PART.fullmatch(value) is None:
            yield from (part for part in _random_words(value) if part != value)


def parts_of_secret(value: str) -> Iterator[str]:
    """Find what is secret of a text of any form: all of it, each line of several, and of a URL the password."""
    found = [value, *value.splitlines()]
    for line in value.split():
        found += _password_of(line)
    for part in dict.fromkeys(text.strip() for text in found):
        if len(part) >= MIN_CHARS:
            yield part


def spellings(value: str) -> Iterator[str]:
    """Spell a secret as it stands, and as JSON, a Python literal and a URL would write it."""
    yield value
    if _ONE_SPELLING.fullmatch(value):
        return
    encoded = [quote(value, safe=""), quote(value, safe="/"), quote_plus(value)]
    for other in {
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value).replace("/", "\\/")[1:-1],
        repr(value)[1:-1],
        *encoded,
        *(re.sub("%..", lambda found: found[0].lower(), text) for text in encoded),
    }:
        if other != value:
            yield other


@lru_cache(maxsize=256)
def _kind(name: str) -> Literal["secret", "open", "unknown"]:
    name = name.lower()
    if name in OPEN_NAMES:
        return "open"
    return "unknown" if _SECRET_NAME.search(name) is None else "secret"


def _password_of(url: str) -> Iterator[str]:
    _, scheme, rest = url.partition("://")
    # up to the last @ before the path: a password with an unescaped @ must not stay in part
    userinfo, at, _ = rest.partition("/")[0].rpartition("@") if "@" in rest.partition("/")[0] else rest.rpartition("@")
    password = userinfo.partition(":")[2]
    if scheme and at and password:
        yield from (password, unquote(password))


def _user_and_password(encoded: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return
    _, colon, password = pair.partition(":")
    yield from (text for text in (pair, password) if colon and len(text) >= MIN_CHARS)


def _random_words(value: str) -> Iterator[str]:
    for word in _WORDS.findall(value):
        name, equals, assigned = word.partition("=")
        # `session=…` and `Signature=…` name what they hold; the padding of base64 ends with the same sign
        for text in (assigned, word) if equals and assigned.strip("=") and name.isidentifier() else (word,):
            if _looks_random(text):
                yield text


def _looks_random(text: str) -> bool:
    """Whether text seems drawn at random: a long piece in which letters and digits take turns several times."""
    return any(
        len(list(itertools.islice(_LETTERS_BESIDE_DIGITS.finditer(chunk[0]), 3))) == 3
        for chunk in _LONG_CHUNK.finditer(text)
    )
