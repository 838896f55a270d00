"""A dataset as its examples, which stay here, and messages with their ids, which cross."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmax.envs.shared_types import Example

from ..limits import DATASET_PART_CHARS, DATASET_PART_IDS, MAX_ID_CHARS
from ..protocol import DatasetPart
from ..text import bounded


def listed(
    dataset: Iterable[object], call: int, *, most_examples: int, most_bytes: int
) -> tuple[list[Example[Any]], list[DatasetPart]]:
    """List a dataset; one without end ends at the limits.

    Args:
        dataset: What `create_dataset` returned.
        call: The call it was.
        most_examples: How many examples there may be.
        most_bytes: How many bytes their ids may have as UTF-8.

    Raises:
        TypeError: something in it is no `Example`.
        ValueError: there are too many, or an id cannot cross.
    """
    examples: list[Example[Any]] = []
    parts: list[list[str]] = []
    room = size = 0
    for example in dataset:
        if not isinstance(example, Example):
            raise TypeError(
                f"create_dataset gave a {type(example).__name__} at position {len(examples)}, expected an Example"
            )
        example_id = _id(example, len(examples))
        examples.append(example)
        size += len(example_id.encode())
        # here and not at the caller, which could only end the worker for it
        if len(examples) > most_examples or size > most_bytes:
            raise ValueError(
                f"create_dataset gave {len(examples)} examples or more, with ids of {size} bytes; expected at most "
                f"{most_examples} examples and {most_bytes} bytes. Ask for fewer with max_examples, or raise "
                "limits.dataset_examples or limits.dataset_bytes"
            )
        room -= len(example_id)
        if room < 0 or len(parts[-1]) == DATASET_PART_IDS:
            parts.append([])
            room = DATASET_PART_CHARS - len(example_id)
        parts[-1].append(example_id)
    return examples, [DatasetPart(call=call, ids=ids) for ids in parts]


def _id(example: Example[Any], position: int) -> str:
    example_id = str.__str__(example.id)
    if bounded(example_id, MAX_ID_CHARS) != example_id:
        raise ValueError(
            f"the id of the example at position {position} cannot cross: it has {len(example_id)} "
            f"characters, expected at most {MAX_ID_CHARS} of valid Unicode; make it with canonical_example_id"
        )
    if not example_id.strip():
        raise ValueError(f"the id of the example at position {position} is blank")
    return example_id
