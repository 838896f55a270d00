"""A dataset is told in messages that fit, or refused where it arose: without end, or with ids that cannot cross."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from benchmax.envs.shared_types import Example
from runner.limits import DATASET_PART_CHARS, DATASET_PART_IDS, MAX_FRAME_BYTES, MAX_ID_CHARS
from runner.protocol import encode
from runner.worker.dataset import listed


def examples(ids: Iterable[str]) -> Iterable[Example[None]]:
    return (Example(example_id, None) for example_id in ids)


def told(dataset: Iterable[object], most_examples: int = 10**6, most_bytes: int = 10**9) -> list[list[str]]:
    kept, parts = listed(dataset, 1, most_examples=most_examples, most_bytes=most_bytes)
    assert [example.id for example in kept] == [example_id for part in parts for example_id in part.ids]
    assert all(len(encode(part)) < MAX_FRAME_BYTES for part in parts)
    return [part.ids for part in parts]


def test_an_empty_dataset_is_told_by_no_message() -> None:
    assert told([]) == []


def test_many_ids_are_told_in_parts_by_their_number() -> None:
    ids = [f"{number}" for number in range(2 * DATASET_PART_IDS + 1)]
    assert [len(part) for part in told(examples(ids))] == [DATASET_PART_IDS, DATASET_PART_IDS, 1]


@pytest.mark.parametrize("char", ["x", "\N{GRINNING FACE}"])
def test_long_ids_are_told_in_parts_by_their_length(char: str) -> None:
    ids = [char * MAX_ID_CHARS] * 1000
    fit = DATASET_PART_CHARS // MAX_ID_CHARS
    assert [len(part) for part in told(examples(ids))] == [fit, fit, fit, 1000 - 3 * fit]


def test_a_dataset_without_end_ends_at_the_limit() -> None:
    with pytest.raises(ValueError, match=r"gave 101 examples or more, .* expected at most 100 examples"):
        told(examples(f"{number}" for number in itertools.count()), most_examples=100)
    with pytest.raises(ValueError, match=r"with ids of 102 bytes; .* and 100 bytes. Ask for fewer with max_examples"):
        told(examples(itertools.repeat("é")), most_bytes=100)


class Claiming(Example[None]):
    """Its id is whatever it says."""

    claimed: Any = ""

    def __getattribute__(self, name: str) -> Any:
        return Claiming.claimed if name == "id" else super().__getattribute__(name)


@pytest.mark.parametrize(
    ("claimed", "error", "text"),
    [
        ("x" * (MAX_ID_CHARS + 1), ValueError, "at position 1 cannot cross: it has 4097 characters"),
        ("\ud800", ValueError, "at position 1 cannot cross"),
        ("", ValueError, "at position 1 is blank"),
        (" \t", ValueError, "at position 1 is blank"),
        (5, TypeError, "str"),
    ],
    ids=["long", "surrogate", "empty", "blank", "number"],
)
def test_an_id_that_cannot_cross_is_named_by_its_position(claimed: Any, error: type[Exception], text: str) -> None:
    Claiming.claimed = "valid while it is made"
    dataset = [Example("fine", None), Claiming("claimed", None)]
    Claiming.claimed = claimed
    with pytest.raises(error, match=text):
        told(dataset)


def test_what_is_no_example_is_named_by_its_position() -> None:
    with pytest.raises(TypeError, match="gave a dict at position 1, expected an Example"):
        told([Example("fine", None), {"id": "x"}])
