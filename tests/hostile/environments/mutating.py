"""An environment that speaks on its worker's descriptors itself: frames of any kind, changed at random, at any time."""

from __future__ import annotations

import json
import os
import random
import select
import struct
from pathlib import Path
from typing import Any

import msgspec

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

WORK, AUTH = 3, 4
EXTREMES: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 2**31, 2**63 - 1, 2**64 - 1, 0.0, 1.5, -1.5, float("nan"), float("inf"), "", " ",
    "a", "r-0", "r-1", "finished", "rollout_timeout", "x" * 5000, "\x1b[2J", "\u202e", b"", b"{}", b'{"x":1}', b"[]",
    b'{"x":NaN}', b"[" * 2000, [], ["r-0"], ["r-0", "r-0"], [[]], {}, {"a": {}}, [0.5], b"\xff" * 100,
]  # fmt: skip


class Voice:
    """Frames to a seed: whole, changed in their fields, in their bytes or in their length."""

    def __init__(self, seed: str, corpus: list[bytes]) -> None:
        self.chance = random.Random(seed)
        self.corpus = corpus

    def frame(self) -> bytes:
        body = self.chance.choice(self.corpus)
        match self.chance.choice(["fields", "fields", "fields", "changed", "whole", "length"]):
            case "fields":
                return self.fields(body)
            case "changed":
                return self.changed(body)
            case "length":
                return self.length(body)
            case _:
                return self.whole(body)

    def whole(self, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + body

    def fields(self, body: bytes) -> bytes:
        message = msgspec.msgpack.decode(body)
        for _ in range(self.chance.choice([1, 1, 2])):
            part = message
            while True:
                name = self.chance.choice(sorted(part))
                if not isinstance(part[name], dict) or not part[name] or self.chance.random() < 0.5:
                    break
                part = part[name]
            if name == "call" and self.chance.random() < 0.8:
                part[name] = self.chance.randrange(6)
            else:
                part[name] = self.chance.choice(EXTREMES)
        return self.whole(msgspec.msgpack.encode(message))

    def changed(self, body: bytes) -> bytes:
        found = bytearray(body)
        for _ in range(self.chance.randint(1, 3)):
            found[self.chance.randrange(len(found))] = self.chance.randrange(256)
        return self.whole(bytes(found))

    def length(self, body: bytes) -> bytes:
        return (
            struct.pack(">I", self.chance.choice([0, 1, len(body) - 1, len(body) + 1, 2**26, 2**31, 2**32 - 1])) + body
        )


def say(descriptor: int, data: bytes) -> None:
    """Write all of it, while the worker's own loop waits."""
    while data:
        select.select([], [descriptor], [])
        data = data[os.write(descriptor, data) :]


class Mutating(Environment[None, RolloutAttempt]):
    """Tells how many frames it sent in a file per process, so that a test knows that it did."""

    def __init__(self, folder: str, seed: int) -> None:
        self.folder = Path(folder)
        corpora = json.loads((self.folder / "corpus.json").read_text())
        number = 0
        while True:
            try:
                self.count = (self.folder / f"worker-{number}").open("x")
            except FileExistsError:
                number += 1
            else:
                break
        self.voices = {
            descriptor: Voice(
                f"{seed} {number} {descriptor}", [bytes.fromhex(body) for body in corpora[str(descriptor)]]
            )
            for descriptor in (WORK, AUTH)
        }
        self.chance = random.Random(f"{seed} {number}")
        self.speak(0.15)

    def speak(self, likely: float) -> None:
        if self.chance.random() >= likely:
            return
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            descriptor = self.chance.choice([WORK, WORK, WORK, AUTH])
            self.count.write(".")
            self.count.flush()
            say(descriptor, self.voices[descriptor].frame())

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        self.speak(0.15)
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        self.speak(0.5)
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})

    async def aclose(self) -> None:
        self.speak(0.9)
