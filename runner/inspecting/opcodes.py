"""Bytes of a pickle cut into instructions. Nothing is carried out, and no more is copied than is kept.

Comes in: the bytes. Goes out: position, instruction and argument, one at a time. Refuses, with `BrokenPickleError`,
what no pickle has: an unknown instruction, an argument that ends early, a text that is none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, TypeAlias

from runner.inspecting.bounds import HEAD_BYTES, KEPT_BYTES, LONG_BYTES, LONG_TEXTS_BYTES, NESTED_PICKLES
from runner.inspecting.values import Blob, Value


class BrokenPickleError(ValueError):
    """Raised where a pickle cannot be read on: loading it would fail here, too.

    Args:
        message: What is wrong.
        position: Where, in bytes from the beginning.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class Op(IntEnum):
    """The instructions of protocols 0 to 5."""

    MARK = 0x28
    STOP = 0x2E
    POP = 0x30
    POP_MARK = 0x31
    DUP = 0x32
    FLOAT = 0x46
    INT = 0x49
    BININT = 0x4A
    BININT1 = 0x4B
    LONG = 0x4C
    BININT2 = 0x4D
    NONE = 0x4E
    PERSID = 0x50
    BINPERSID = 0x51
    REDUCE = 0x52
    STRING = 0x53
    BINSTRING = 0x54
    SHORT_BINSTRING = 0x55
    UNICODE = 0x56
    BINUNICODE = 0x58
    APPEND = 0x61
    BUILD = 0x62
    GLOBAL = 0x63
    DICT = 0x64
    EMPTY_DICT = 0x7D
    APPENDS = 0x65
    GET = 0x67
    BINGET = 0x68
    INST = 0x69
    LONG_BINGET = 0x6A
    LIST = 0x6C
    EMPTY_LIST = 0x5D
    OBJ = 0x6F
    PUT = 0x70
    BINPUT = 0x71
    LONG_BINPUT = 0x72
    SETITEM = 0x73
    TUPLE = 0x74
    EMPTY_TUPLE = 0x29
    SETITEMS = 0x75
    BINFLOAT = 0x47
    BINBYTES = 0x42
    SHORT_BINBYTES = 0x43
    PROTO = 0x80
    NEWOBJ = 0x81
    EXT1 = 0x82
    EXT2 = 0x83
    EXT4 = 0x84
    TUPLE1 = 0x85
    TUPLE2 = 0x86
    TUPLE3 = 0x87
    NEWTRUE = 0x88
    NEWFALSE = 0x89
    LONG1 = 0x8A
    LONG4 = 0x8B
    SHORT_BINUNICODE = 0x8C
    BINUNICODE8 = 0x8D
    BINBYTES8 = 0x8E
    EMPTY_SET = 0x8F
    ADDITEMS = 0x90
    FROZENSET = 0x91
    NEWOBJ_EX = 0x92
    STACK_GLOBAL = 0x93
    MEMOIZE = 0x94
    FRAME = 0x95
    BYTEARRAY8 = 0x96
    NEXT_BUFFER = 0x97
    READONLY_BUFFER = 0x98


PUSHED: Final = frozenset(
    int(op)
    for op in {
        Op.BININT, Op.BININT1, Op.BININT2, Op.BINFLOAT, Op.INT, Op.LONG, Op.LONG1, Op.LONG4, Op.FLOAT, Op.STRING,
        Op.BINSTRING, Op.SHORT_BINSTRING, Op.UNICODE, Op.BINUNICODE, Op.SHORT_BINUNICODE, Op.BINUNICODE8, Op.BINBYTES,
        Op.SHORT_BINBYTES, Op.BINBYTES8, Op.BYTEARRAY8, Op.NONE,
    }
)  # fmt: skip
"""Instructions that put their argument on the stack."""

Argument: TypeAlias = "Value | tuple[str, str]"
Instruction: TypeAlias = "tuple[int, int, Argument]"

# an enumeration's members take as long to name as the rest of an instruction takes
_SHORT_BINUNICODE, _BINFLOAT, _STOP = int(Op.SHORT_BINUNICODE), int(Op.BINFLOAT), int(Op.STOP)
_ONE_BYTE: Final = (int(Op.BININT1), int(Op.BINGET))
_unpack_float: Final = struct.Struct(">d").unpack_from

_NUMBERS: Final[dict[int, struct.Struct]] = {
    Op.BININT1: struct.Struct("<B"),
    Op.BININT2: struct.Struct("<H"),
    Op.BININT: struct.Struct("<i"),
    Op.BINFLOAT: struct.Struct(">d"),
    Op.BINGET: struct.Struct("<B"),
    Op.LONG_BINGET: struct.Struct("<I"),
    Op.BINPUT: struct.Struct("<B"),
    Op.LONG_BINPUT: struct.Struct("<I"),
    Op.PROTO: struct.Struct("<B"),
    Op.EXT1: struct.Struct("<B"),
    Op.EXT2: struct.Struct("<H"),
    Op.EXT4: struct.Struct("<i"),
    Op.FRAME: struct.Struct("<Q"),
}
"""Instructions with a number of fixed size."""

_COUNTED: Final[dict[int, tuple[struct.Struct, str]]] = {
    Op.SHORT_BINSTRING: (struct.Struct("<B"), "ascii"),
    Op.BINSTRING: (struct.Struct("<i"), "ascii"),
    Op.SHORT_BINUNICODE: (struct.Struct("<B"), "utf-8"),
    Op.BINUNICODE: (struct.Struct("<I"), "utf-8"),
    Op.BINUNICODE8: (struct.Struct("<Q"), "utf-8"),
    Op.SHORT_BINBYTES: (struct.Struct("<B"), ""),
    Op.BINBYTES: (struct.Struct("<I"), ""),
    Op.BINBYTES8: (struct.Struct("<Q"), ""),
    Op.BYTEARRAY8: (struct.Struct("<Q"), ""),
    Op.LONG1: (struct.Struct("<B"), "number"),
    Op.LONG4: (struct.Struct("<i"), "number"),
}
"""Instructions with a size, and what the bytes after it are: the encoding of a text, bytes, or a number."""

_LINES: Final = frozenset({Op.INT, Op.LONG, Op.FLOAT, Op.STRING, Op.UNICODE, Op.GET, Op.PUT, Op.PERSID})
_TWO_LINES: Final = frozenset({Op.GLOBAL, Op.INST})

HIGHEST_PROTOCOL: Final = 5

_SMALLEST: Final = 4
"""Bytes of the smallest pickle that names its protocol."""

_LINE_DIGITS: Final = 20
"""Digits of a number that is kept: 64 bits' worth."""

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip(b"abfnrtv\n", (b"\a", b"\b", b"\f", b"\n", b"\r", b"\t", b"\v", b""), strict=True))


def instructions(data: bytes, nested: list[tuple[int, int]] | None = None) -> Iterator[Instruction]:
    """Cut a pickle into instructions, up to and including the one that ends it.

    Args:
        data: The pickle and whatever follows it.
        nested: Is given begin and end of data that may be another pickle.

    Yields:
        Position, instruction and argument; `None` where it has none.

    Raises:
        BrokenPickleError: it cannot be read on, or is over without having ended.
    """
    position, end = 0, len(data)
    read = _Reading(data, nested if nested is not None else [])
    readers = _READERS
    try:
        while position < end:
            op = data[position]
            # first what data mostly consists of, at a third of the time
            if op == _SHORT_BINUNICODE:
                begin = position + 2
                after = begin + data[position + 1]
                if after > end:
                    raise read.short(op, position)
                yield position, op, read.text(begin, after, "utf-8", op, position)
                position = after
            elif op in _ONE_BYTE:
                yield position, op, data[position + 1]
                position += 2
            elif op == _BINFLOAT:
                yield position, op, _unpack_float(data, position + 1)[0]
                position += 9
            else:
                reader = readers[op]
                if reader is None:
                    yield position, op, None
                    position += 1
                    if op == _STOP:
                        return
                else:
                    argument, after = reader(read, op, position)
                    yield position, op, argument
                    position = after
    except (IndexError, struct.error):
        raise read.short(data[position], position) from None
    raise BrokenPickleError("it is cut short: it is over before the instruction that ends a pickle", end)


class _Reading:
    """The bytes, how much of long texts may still be kept, and what may be a pickle in them."""

    __slots__ = ("data", "nested", "room")

    def __init__(self, data: bytes, nested: list[tuple[int, int]]) -> None:
        self.data = data
        self.nested = nested
        self.room = LONG_TEXTS_BYTES

    def number(self, op: int, position: int) -> tuple[Argument, int]:
        form = _NUMBERS[op]
        after = position + 1 + form.size
        try:
            (number,) = form.unpack_from(self.data, position + 1)
        except struct.error:
            raise self.short(op, position) from None
        return number, after

    def counted(self, op: int, position: int) -> tuple[Argument, int]:
        form, kind = _COUNTED[op]
        begin = position + 1 + form.size
        try:
            (size,) = form.unpack_from(self.data, position + 1)
        except struct.error:
            raise self.short(op, position) from None
        if size < 0:
            raise BrokenPickleError(f"{Op(op).name} has a size of {size}", position)
        after = begin + size
        if after > len(self.data):
            raise BrokenPickleError(
                f"it is cut short: {Op(op).name} announces {size:,} bytes, and {len(self.data) - begin:,} follow",
                position,
            )
        if kind == "number":
            value: Value = int.from_bytes(self.data[begin:after], "little", signed=True) if size <= 8 else None
            return (Blob("number", size) if value is None else value), after
        if kind == "":
            return self.kept_bytes(begin, after), after
        return self.text(begin, after, kind, op, position), after

    def kept_bytes(self, begin: int, after: int) -> Value:
        size, data = after - begin, self.data
        if (
            size >= _SMALLEST
            and data[begin] == Op.PROTO
            and data[after - 1] == Op.STOP
            and 2 <= data[begin + 1] <= HIGHEST_PROTOCOL
            and len(self.nested) <= NESTED_PICKLES
        ):
            self.nested.append((begin, after))
        return data[begin:after] if self.keeps(size) else Blob("bytes", size)

    def text(self, begin: int, after: int, encoding: str, op: int, position: int) -> Value:
        size = after - begin
        try:
            if size <= LONG_BYTES or self.keeps(size):
                return self.data[begin:after].decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError:
            raise BrokenPickleError(f"{Op(op).name} holds no valid text", position) from None
        return Blob("text", size, self.data[begin : begin + HEAD_BYTES].decode(encoding, "replace"))

    def keeps(self, size: int) -> bool:
        if size <= LONG_BYTES:
            return True
        if size > KEPT_BYTES or size > self.room:
            return False
        self.room -= size
        return True

    def line(self, op: int, position: int) -> tuple[Argument, int]:
        begin = position + 1
        end = self.data.find(b"\n", begin)
        if end < 0:
            raise self.short(op, position)
        try:
            return self.in_line(op, begin, end), end + 1
        except (ValueError, OverflowError):
            raise BrokenPickleError(f"{Op(op).name} has an argument that is none", position) from None

    def in_line(self, op: int, begin: int, end: int) -> Value:
        size = end - begin
        if op == Op.UNICODE:
            if not self.keeps(size):
                return Blob("text", size, self.data[begin : begin + HEAD_BYTES].decode("latin-1"))
            return self.data[begin:end].decode("raw-unicode-escape")
        if op == Op.STRING:
            return self.quoted(begin, end)
        if op == Op.PERSID:
            return self.data[begin:end].decode("ascii") if self.keeps(size) else Blob("text", size)
        if size > _LINE_DIGITS and op != Op.FLOAT:
            if op in (Op.GET, Op.PUT):
                raise ValueError
            return Blob("number", size)
        if size > KEPT_BYTES:
            raise ValueError
        text = self.data[begin:end].decode("ascii")
        if op == Op.FLOAT:
            return float(text)
        if op == Op.INT and text in ("00", "01"):
            return text == "01"
        number = int(text.removesuffix("L") if op == Op.LONG else text, 0 if op == Op.INT else 10)
        if number < 0 and op in (Op.GET, Op.PUT):
            raise ValueError
        return number

    def quoted(self, begin: int, end: int) -> Value:
        size = end - begin
        if size < 2 or self.data[begin] != self.data[end - 1] or self.data[begin] not in b"'\"":
            raise ValueError
        if not self.keeps(size):
            return Blob("text", size, self.data[begin + 1 : begin + HEAD_BYTES].decode("latin-1"))
        return _ESCAPE.sub(_unescaped, self.data[begin + 1 : end - 1]).decode("ascii")

    def two_lines(self, op: int, position: int) -> tuple[Argument, int]:
        middle = self.data.find(b"\n", position + 1)
        end = self.data.find(b"\n", middle + 1) if middle >= 0 else -1
        if end < 0:
            raise self.short(op, position)
        if end - position > KEPT_BYTES:
            return None, end + 1
        try:
            names = self.data[position + 1 : middle].decode(), self.data[middle + 1 : end].decode()
        except UnicodeDecodeError:
            raise BrokenPickleError(f"{Op(op).name} holds no valid text", position) from None
        return names, end + 1

    def unknown(self, op: int, position: int) -> tuple[Argument, int]:
        raise BrokenPickleError(f"no pickle has an instruction 0x{op:02x}", position)

    def short(self, op: int, position: int) -> BrokenPickleError:
        return BrokenPickleError(f"it is cut short inside {Op(op).name}", position)


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:
        return bytes([int(found[1], 16)])
    if found[2] is not None:
        return bytes([int(found[2], 8) & 0xFF])
    return _ESCAPED.get(found[3][0], found[3] if found[3] in b"\\'\"" else found[0])


_Reader: TypeAlias = Callable[[_Reading, int, int], "tuple[Argument, int]"]


def _reader(op: int) -> _Reader | None:
    if op not in Op.__members__.values():
        return _Reading.unknown
    if op in _NUMBERS:
        return _Reading.number
    if op in _COUNTED:
        return _Reading.counted
    if op in _LINES:
        return _Reading.line
    return _Reading.two_lines if op in _TWO_LINES else None


_READERS: Final = [_reader(op) for op in range(256)]
