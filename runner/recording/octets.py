"""Bytes in JSON: as text where they are text, in base64 where they are not."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec


class Octets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of a request or an answer.

    Args:
        text: The bytes as UTF-8.
        base64: The bytes in base64, when they are no UTF-8; the text is empty then.

    Raises:
        ValueError: the base64 is none.
    """

    text: str = ""
    base64: str = ""

    @classmethod
    def of(cls, data: bytes, clean: Callable[[str], str]) -> Octets:
        """Keep bytes.

        Args:
            data: The bytes.
            clean: Takes secrets out of text; bytes that are no text are searched as if each were a character.
        """
        try:
            return cls(text=clean(data.decode()))
        except UnicodeDecodeError:
            cleaned = clean(data.decode("latin-1")).encode("latin-1", "replace")
            return cls(base64=base64.b64encode(cleaned).decode("ascii"))

    def __post_init__(self) -> None:
        try:
            bytes(self)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error

    def __bytes__(self) -> bytes:
        """Return the bytes."""
        return base64.b64decode(self.base64, validate=True) if self.base64 else self.text.encode()
