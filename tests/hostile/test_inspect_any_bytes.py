"""Bytes of any kind in place of a pickle: inspected without an error, and as an unpickler would understand them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from benchmax.bundle.capture.references import find_references
from benchmax.bundle.errors import BundlingError
from runner.inspecting import Overview, inspect_pickle
from runner.inspecting.opcodes import BrokenPickleError, Op, instructions
from runner.text import one_line

BUNDLES = Path(__file__).parents[1] / "fixtures" / "contract" / "bundles"
PLAIN = (BUNDLES / "plain" / "env-cls.pkl").read_bytes()
WITHOUT_ARGUMENT = bytes(op for op in Op if op not in (Op.STOP, Op.BINPERSID, Op.NEXT_BUFFER)).translate(
    None, b"FIJKLMPSTUVXcgijpqrGBC\x80\x82\x83\x84\x8a\x8b\x8c\x8d\x8e\x95\x96h"
)
PIECES = [bytes([code]) for code in WITHOUT_ARGUMENT] + [
    b"K\x07", b"h\x00", b"h\x01", b"q\x01", b"\x8c\x01a", b"\x8c\x01b", b"cm\nn\n", b"im\nn\n",
    b"\x8c\x02mm\x8c\x02nn\x93", b"X\x01\0\0\0c", b"r\x02\0\0\0", b"j\x01\0\0\0",
    b"p3\n", b"g3\n", b"S'd'\n", b"C\x01e", b"G\0\0\0\0\0\0\0\0",
]  # fmt: skip


def names_by(overview: Overview) -> dict[str, tuple[str, ...]]:
    return {one.module: one.names for one in overview.imports if not one.module.startswith("cloudpickle")}


def understood(data: bytes) -> bool:
    """Check that bytes are understood as an unpickler does that makes nothing; tell whether it could."""
    overview = inspect_pickle(data)
    json.dumps(overview.as_json())
    if any(one.code == "memory" for one in overview.findings):
        # a real one would take it
        return False
    try:
        references = find_references(data)
    except BundlingError:
        # members that a set cannot hold, persistent ids: what only making things can tell
        return False
    assert overview.broken == "", data
    told = names_by(overview)
    for module, names in references.names.items():
        assert {one_line(name) for name in names} <= set(told[one_line(module)]), data
    return True


def test_a_bundle_with_any_byte_changed() -> None:
    chance = random.Random(1)
    for _ in range(300):
        data = bytearray(PLAIN)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        understood(bytes(data))


def test_a_bundle_with_instructions_changed() -> None:
    chance = random.Random(2)
    places = [position for position, _, _ in instructions(PLAIN)][2:]
    count = 0
    for _ in range(300):
        place = chance.choice(places)
        following = chance.choice([place, *[one for one in places if one >= place][:3]])
        piece = b"".join(chance.choices(PIECES, k=chance.randrange(3)))
        # without the frame, whose length would be another
        count += understood(PLAIN[:2] + PLAIN[11:place] + piece + PLAIN[following:])
    assert count > 30


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_instructions_in_any_order(protocol: int) -> None:
    chance = random.Random(protocol)
    count = 0
    for _ in range(4_000):
        program = b"".join(chance.choices(PIECES, k=chance.randrange(1, 14)))
        begin = bytes([0x80, protocol]) if protocol else b""
        count += understood(begin + b"N\x940" + program + b".")
    assert count > 100


def test_bytes_by_chance() -> None:
    chance = random.Random(3)
    for length in (0, 1, 2, 3, 10, 100, 1_000):
        for _ in range(60):
            understood(chance.randbytes(length))


def test_every_beginning_of_a_bundle_is_broken() -> None:
    for length in range(0, len(PLAIN), 41):
        overview = inspect_pickle(PLAIN[:length])
        assert "cut short" in overview.broken
        with pytest.raises(BrokenPickleError):
            [*instructions(PLAIN[:length])]
