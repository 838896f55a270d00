"""Compressed bodies are undone a bounded piece at a time; broken ones are said to be."""

from __future__ import annotations

import gzip
import zlib

import pytest

from runner.gateway.encoding import PIECE_BYTES, Inflater


@pytest.mark.parametrize("compressed", [gzip.compress(b"hello"), zlib.compress(b"hello")], ids=["gzip", "deflate"])
def test_gzip_and_deflate_are_undone_byte_by_byte(compressed: bytes) -> None:
    inflater = Inflater()
    assert b"".join(piece for byte in compressed for piece in inflater.feed(bytes([byte]))) == b"hello"
    inflater.finish()


def test_parts_that_follow_one_another_are_one_body() -> None:
    inflater = Inflater()
    assert b"".join(inflater.feed(gzip.compress(b"a") + gzip.compress(b"b"))) == b"ab"


def test_a_few_bytes_never_become_many_at_once() -> None:
    bomb = gzip.compress(bytes(20 * PIECE_BYTES))
    assert len(bomb) < PIECE_BYTES // 10
    sizes = [len(piece) for piece in Inflater().feed(bomb)]
    assert sum(sizes) == 20 * PIECE_BYTES
    assert max(sizes) <= PIECE_BYTES


def test_what_is_not_compressed_or_ends_too_early_is_an_error() -> None:
    with pytest.raises(ValueError, match="incorrect header"):
        list(Inflater().feed(b"<html>"))
    cut = Inflater()
    list(cut.feed(gzip.compress(b"hello")[:-4]))
    with pytest.raises(ValueError, match="ends too early"):
        cut.finish()
