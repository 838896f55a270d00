"""A stream of bytes becomes frames: however it was cut, whatever it announces, and never with more room than needed."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import FrameError
from runner.frames import READ_BYTES, FrameParser
from runner.limits import MAX_FRAME_BYTES
from runner.protocol import HEADER

CUTS = st.lists(st.integers(0, 2000), max_size=20)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(bounds)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), CUTS)
def test_any_cutting_of_the_bytes_gives_the_same_bodies(bodies: list[bytes], places: list[int]) -> None:
    stream = b"".join(HEADER.pack(len(body)) + body for body in bodies)
    parser = FrameParser()
    assert [body for piece in cut(stream, places) for body in parser.feed(piece)] == bodies
    parser.finish()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.sampled_from([0, 101, 2**32 - 1]), CUTS)
def test_the_frames_before_a_broken_one_count_however_the_bytes_are_cut(
    bodies: list[bytes], length: int, places: list[int]
) -> None:
    stream = b"".join(HEADER.pack(len(body)) + body for body in bodies) + HEADER.pack(length) + b"more"
    parser = FrameParser(limit=100)
    got = []
    with pytest.raises(FrameError, match=f"announces {length} bytes"):
        for piece in cut(stream, places):
            for body in parser.feed(piece):
                got.append(body)
    assert got == bodies


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20_000), max_size=6), st.integers(1, 9_000))
def test_bytes_read_straight_into_the_room_give_the_same_bodies(sizes: list[int], piece: int) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(HEADER.pack(len(body)) + body for body in bodies))
    parser = FrameParser()
    got = []
    while stream:
        room = parser.room()
        count = min(len(room), len(stream), piece)
        room[:count] = stream[:count]
        stream = stream[count:]
        got += [bytes(body) for body in parser.arrived(count)]
    assert got == bodies
    parser.finish()


def test_the_room_is_never_small_and_grows_with_what_has_come() -> None:
    parser = FrameParser()
    stream = HEADER.pack(1_000_000) + bytes(1_000_000)
    came = 0
    bodies: list[memoryview] = []
    while came < len(stream):
        room = parser.room()
        assert READ_BYTES // 2 <= len(room) <= READ_BYTES + 2 * came
        count = min(len(room), len(stream) - came)
        room[:count] = stream[came : came + count]
        came += count
        bodies = list(parser.arrived(count))
    assert [len(body) for body in bodies] == [1_000_000]
    assert len(parser.room()) == READ_BYTES


def test_the_four_ways_a_frame_can_be_broken_have_four_texts() -> None:
    texts = []
    for data in (b"\0\0\0\0", struct.pack(">I", 101), b"\0\0", struct.pack(">I", 100) + b"abc"):
        parser = FrameParser(limit=100)
        with pytest.raises(FrameError) as caught:
            list(parser.feed(data))
            parser.finish()
        texts.append(str(caught.value))
    assert texts == [
        "a frame announces 0 bytes, expected at least 1.",
        "a frame announces 101 bytes, expected at most 100.",
        "the stream ended inside a frame's header: expected 4 bytes, got 2.",
        "the stream ended inside a frame's body: expected 100 bytes, got 3.",
    ]


def test_a_frame_of_exactly_the_limit_is_whole() -> None:
    parser = FrameParser(limit=100)
    assert list(parser.feed(struct.pack(">I", 100) + bytes(100))) == [bytes(100)]
    parser.finish()


def test_a_large_body_takes_its_own_size_twice_at_most_while_it_comes() -> None:
    size = 8_400_000
    pieces = [HEADER.pack(size)] + [bytes(100_000)] * 84
    tracemalloc.start()
    try:
        parser = FrameParser()
        for piece in pieces:
            for begin in range(0, len(piece), 1000):
                part = piece[begin : begin + 1000]
                parser.room()[: len(part)] = part
                assert all(len(body) == size for body in parser.arrived(len(part)))
        parser.room()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * size + 500_000
    assert kept < 500_000


def test_no_room_is_made_for_a_body_before_it_comes() -> None:
    tracemalloc.start()
    try:
        refusing, waiting = FrameParser(), FrameParser()
        with pytest.raises(FrameError):
            list(refusing.feed(b"\xff\xff\xff\xff"))
        assert list(waiting.feed(HEADER.pack(MAX_FRAME_BYTES) + b"x")) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
