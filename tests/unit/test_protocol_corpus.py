"""One message of every kind, broken in every way there is: it is refused as a `FrameError`, or is another message."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runner.errors import FrameError
from runner.protocol import (
    HEADER,
    MessageDecoder,
    auth_from_worker_decoder,
    auth_to_worker_decoder,
    encode,
    from_worker_decoder,
    to_worker_decoder,
)
from tests.unit.message_samples import AUTH_FROM_WORKER, AUTH_TO_WORKER, FROM_WORKER, TO_WORKER

SIDES: dict[str, tuple[MessageDecoder[Any], list[Any]]] = {
    "to worker": (to_worker_decoder(), TO_WORKER),
    "from worker": (from_worker_decoder(), FROM_WORKER),
    "auth to worker": (auth_to_worker_decoder(), AUTH_TO_WORKER),
    "auth from worker": (auth_from_worker_decoder(), AUTH_FROM_WORKER),
}
CORPUS = [
    pytest.param(decoder, encode(message)[HEADER.size :], id=f"{side}: {type(message).__name__}")
    for side, (decoder, messages) in SIDES.items()
    for message in messages
]
BODIES = [encode(message)[HEADER.size :] for _, messages in SIDES.values() for message in messages]


@pytest.mark.parametrize(("decoder", "body"), CORPUS)
def test_every_truncation_is_refused(decoder: MessageDecoder[Any], body: bytes) -> None:
    for end in range(len(body)):
        with pytest.raises(FrameError):
            decoder.decode(body[:end])
    with pytest.raises(FrameError):
        decoder.decode(body + b"\xc0")


@pytest.mark.parametrize(("decoder", "body"), CORPUS)
def test_every_change_of_one_byte_is_refused_or_is_another_message_that_could_be_sent(
    decoder: MessageDecoder[Any], body: bytes
) -> None:
    changed = bytearray(body)
    for place, was in enumerate(body):
        for value in range(256):
            changed[place] = value
            try:
                message = decoder.decode(bytes(changed))
            except FrameError:
                continue
            # an honest peer could have sent it: it is within every bound
            encode(message)
        changed[place] = was


@pytest.mark.parametrize(("decoder", "body"), CORPUS)
def test_no_length_that_a_part_could_announce_is_believed(decoder: MessageDecoder[Any], body: bytes) -> None:
    lengths = [b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
    lengths += [b"\xc9\xff\xff\xff\xff\x01", b"\xda\xff\xff", b"\xdc\xff\xff", b"\xde\xff\xff"]
    tracemalloc.start()
    try:
        for place in range(len(body)):
            for length in lengths:
                # inside of a number it is one
                with contextlib.suppress(FrameError):
                    encode(decoder.decode(body[:place] + length))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("side", SIDES)
def test_random_bytes_and_random_msgpack_raise_nothing_but_frame_errors(side: str) -> None:
    decoder, messages = SIDES[side]
    chance = random.Random(7)
    names = sorted({name for message in messages for name in msgspec.structs.asdict(message)})
    tags = [message.__struct_config__.tag for message in messages]
    odd = msgspec.msgpack.Ext(5, b"x")
    leaves = [None, True, 0, -1, 2**63, 2**64 - 1, 0.5, float("nan"), "", "x", b"", b"\xff", odd]

    def value(depth: int) -> Any:
        kind = chance.random()
        if depth == 0 or kind < 0.7:
            return chance.choice(leaves)
        items = [value(depth - 1) for _ in range(chance.randrange(4))]
        return items if kind < 0.85 else {chance.choice(names): item for item in items}

    for _ in range(20_000):
        fields = {chance.choice(names): value(2) for _ in range(chance.randrange(6))}
        bodies = [chance.randbytes(chance.randrange(60)), msgspec.msgpack.encode({"op": chance.choice(tags), **fields})]
        for body in bodies:
            try:
                encode(decoder.decode(body))
            except FrameError:
                continue


NESTED = """
import struct, sys, threading
sys.path.insert(0, {root!r})
from runner.errors import FrameError
from runner.protocol import *
from tests.unit.test_protocol_corpus import CORPUS, SIDES

def refuse():
    count = 0
    for levels in (100, 400, 990, 9_000, 100_000):
        for nest in (b"\\x91", b"\\x81\\xa1a", b"\\xdc\\x00\\x01", b"\\x82\\xa2op"):
            for decoder, body in [parameters.values for parameters in CORPUS]:
                for place in range(0, len(body), 7):
                    try:
                        decoder.decode(body[:place] + nest * levels + b"\\xc0")
                    except FrameError:
                        count += 1
    print(count)

threading.stack_size(256 * 1024)
thread = threading.Thread(target=refuse)
thread.start()
thread.join()
"""


def test_deep_nesting_anywhere_is_refused_on_a_thread_with_a_small_stack() -> None:
    """In a process of its own, since what it guards against is a segmentation fault."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", NESTED.format(root=root)], capture_output=True, text=True)
    places = sum(len(range(0, len(body), 7)) for body in BODIES)
    assert (done.returncode, done.stdout) == (0, f"{5 * 4 * places}\n"), done.stderr
