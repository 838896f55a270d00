"""Pickles put together instruction by instruction, as no packing would."""

from __future__ import annotations

import struct


def text(value: str) -> bytes:
    """Push a text."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def name(module: str, qualified: str) -> bytes:
    """Push something imported."""
    return text(module) + text(qualified) + b"\x93"


def group(*members: bytes) -> bytes:
    """Push a tuple."""
    return b"(" + b"".join(members) + b"t"


def call(callee: bytes, *arguments: bytes) -> bytes:
    """Push the result of a call."""
    return callee + group(*arguments) + b"R"


def pickle_of(*values: bytes, protocol: int = 4) -> bytes:
    """Make a pickle of what is pushed last; what is pushed before is dropped."""
    return bytes([0x80, protocol]) + b"0".join(values) + b"."
