"""Pickles cut into instructions: as the standard library cuts them, and not one byte beyond what is there."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import struct
from datetime import datetime
from pathlib import Path

import pytest

from runner.inspecting.bounds import KEPT_BYTES
from runner.inspecting.opcodes import BrokenPickleError, Op, instructions
from runner.inspecting.values import Blob

BUNDLES = Path(__file__).parents[1] / "fixtures" / "contract" / "bundles"
REAL = {path.parent.name: path.read_bytes() for path in sorted(BUNDLES.glob("*/env-cls.pkl"))}

VALUES: list[object] = [
    None, True, False, 0, 1, 255, 256, 65_535, 65_536, -1, -(2**31), 2**31, 2**63, -(2**70), 2**2000, 0.5, -1e300,
    "", "text", "é ♞ \ud800", "quote ' and \" and \\ and \n", b"", b"bytes\n\x00\xff", bytearray(b"more"), "s" * 300,
    [], [1, [2]], {}, {"a": {"b": ()}}, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), set(), {1}, frozenset({2}),
    datetime(2026, 1, 2), len, pickle.Pickler,
]  # fmt: skip


def cut(data: bytes) -> list[tuple[int, int, object]]:
    return [*instructions(data)]


def as_the_standard_library_cuts(data: bytes) -> list[tuple[int, int, object]]:
    found: list[tuple[int, int, object]] = []
    for opcode, argument, position in pickletools.genops(data):
        # it joins two names by a space, and leaves number one in words
        names = tuple(str(argument).split(" ", 1)) if opcode.name in ("GLOBAL", "INST") else argument
        found.append((position or 0, ord(opcode.code), names))
    return found


def test_every_instruction_there_is_is_known_by_its_name() -> None:
    assert {op.name: int(op) for op in Op} == {opcode.name: ord(opcode.code) for opcode in pickletools.opcodes}


@pytest.mark.parametrize("bundle", REAL)
def test_real_bundles_are_cut_as_the_standard_library_cuts_them(bundle: str) -> None:
    assert cut(REAL[bundle]) == as_the_standard_library_cuts(REAL[bundle])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_of_every_kind_and_protocol_are_cut_alike(protocol: int) -> None:
    for value in VALUES:
        data = pickle.dumps(value, protocol)
        for (place, op, argument), (there, code, expected) in zip(
            cut(data), as_the_standard_library_cuts(data), strict=True
        ):
            assert (place, op) == (there, code)
            # a number beyond 64 bits is told by its size
            assert argument == expected or isinstance(argument, Blob), (value, Op(op).name)


def test_what_is_large_is_told_by_its_size_and_its_beginning() -> None:
    ((_, _, proto), (_, _, argument), *_) = cut(pickle.dumps("é" * KEPT_BYTES, 2))
    assert proto == 2
    assert isinstance(argument, Blob)
    assert (argument.kind, argument.size) == ("text", 2 * KEPT_BYTES)
    assert argument.head.startswith("éé")


@pytest.mark.parametrize("bundle", REAL)
def test_a_bundle_that_is_cut_anywhere_is_broken_and_nothing_else(bundle: str) -> None:
    data = REAL[bundle]
    for length in range(0, len(data), 61):
        with pytest.raises(BrokenPickleError, match="cut short"):
            cut(data[:length])


def test_bytes_of_any_kind_are_cut_or_refused_and_nothing_else() -> None:
    chance = random.Random(7)
    real = REAL["plain"]
    for _ in range(1_000):
        data = bytearray(real[: chance.randrange(1, len(real))])
        for _ in range(chance.randrange(1, 5)):
            place = chance.randrange(len(data) + 1)
            data[place : place + chance.randrange(4)] = chance.randbytes(chance.randrange(6))
        try:
            cut(bytes(data))
        except BrokenPickleError as error:
            assert 0 <= error.position <= len(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "it is over before the instruction that ends a pickle"),
        (b"\x00", "no pickle has an instruction 0x00"),
        (b"\xff.", "no pickle has an instruction 0xff"),
        (b"B" + struct.pack("<I", 2**32 - 1) + b".", "BINBYTES announces 4,294,967,295 bytes, and 1 follow"),
        (b"\x8e" + struct.pack("<Q", 2**64 - 1) + b".", "BINBYTES8 announces 18,446,744,073,709,551,615 bytes"),
        (b"\x8b" + struct.pack("<i", -1) + b".", "LONG4 has a size of -1"),
        (b"T" + struct.pack("<i", -5) + b".", "BINSTRING has a size of -5"),
        (b"\x8b" + struct.pack("<i", 2**31 - 1) + b".", "LONG4 announces 2,147,483,647 bytes"),
        (b"\x8c\x02\xff\xfe.", "SHORT_BINUNICODE holds no valid text"),
        (b"U\x01\xe9.", "SHORT_BINSTRING holds no valid text"),
        (b"Inumber\n.", "INT has an argument that is none"),
        (b"g-1\n.", "GET has an argument that is none"),
        (b"g" + b"9" * 5000 + b"\n.", "GET has an argument that is none"),
        (b"F" + b"1" * 5000 + b"\n.", "FLOAT has an argument that is none"),
        (b"S'open\n.", "STRING has an argument that is none"),
        (b"V\\ud8\n.", "UNICODE has an argument that is none"),
        (b"cos", "cut short inside GLOBAL"),
        (b"cos\nsystem", "cut short inside GLOBAL"),
        (b"c\xff\nsystem\n.", "GLOBAL holds no valid text"),
        (b"G\x00\x00", "cut short inside BINFLOAT"),
        (b"K", "cut short inside BININT1"),
        (b"\x8c\x09abc", "cut short inside SHORT_BINUNICODE"),
        (b"\x8c", "cut short inside SHORT_BINUNICODE"),
    ],
    ids=lambda value: repr(value[:14]) if isinstance(value, bytes) else "",
)
def test_what_no_pickle_has_is_refused_by_name(data: bytes, what: str) -> None:
    with pytest.raises(BrokenPickleError) as caught:
        cut(data)
    assert what in str(caught.value)
    with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, AttributeError, OverflowError, MemoryError)):
        pickle.Unpickler(io.BytesIO(data)).load()


def test_a_number_of_a_million_digits_is_not_computed() -> None:
    (_, _, argument), _ = cut(b"L" + b"9" * 1_000_000 + b"L\n.")
    assert isinstance(argument, Blob)
    assert (argument.kind, argument.size) == ("number", 1_000_001)


def test_the_old_text_instruction_is_read_with_its_escapes() -> None:
    for value in ("o\\x73", "\\157s", "a\\\\b", "tab\\t", "it\\'s"):
        data = f"S'{value}'\n.".encode()
        (_, _, argument), _ = cut(data)
        assert argument == pickle.loads(data)
