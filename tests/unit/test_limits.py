"""Limits a caller may change are positive and finite; what cannot be meant is refused by name."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from runner import limits
from runner.limits import Limits

NAMES = [field.name for field in dataclasses.fields(Limits)]
WHOLE = [field.name for field in dataclasses.fields(Limits) if "int" in str(field.type)]
OPTIONAL = [field.name for field in dataclasses.fields(Limits) if "None" in str(field.type)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in NAMES
        for value in (-1, math.nan, math.inf, "1", None, True)
        if value is not None or name not in OPTIONAL
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"limit {name} must be"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_zero_means_none_for_restarts_alone(name: str) -> None:
    if name == "restarts":
        assert Limits(restarts=0).restarts == 0
        return
    with pytest.raises(ValueError, match=f"limit {name} must be positive"):
        Limits(**{name: 0})


@pytest.mark.parametrize("name", WHOLE)
def test_sizes_and_counts_are_whole_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=f"limit {name} must be a whole number, got 1.5"):
        Limits(**{name: 1.5})  # type: ignore[arg-type]  # the point


def test_a_transcript_limit_beyond_what_fits_a_message_is_refused() -> None:
    assert Limits(transcript_bytes=limits.MAX_TRANSCRIPT_BYTES).transcript_bytes < limits.MAX_FRAME_BYTES
    with pytest.raises(ValueError, match="limit transcript_bytes must be at most"):
        Limits(transcript_bytes=limits.MAX_TRANSCRIPT_BYTES + 1)


def test_fewer_descriptors_than_a_worker_starts_with_are_refused() -> None:
    assert Limits(open_files=limits.MIN_OPEN_FILES).open_files == 256
    with pytest.raises(ValueError, match="limit open_files must be at least 256, got 255"):
        Limits(open_files=255)


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_the_machine_may_be_left_to_bound_can_be_none(name: str) -> None:
    assert getattr(Limits(**{name: None}), name) is None  # type: ignore[arg-type]  # the names are those of such limits


def test_times_may_be_given_as_whole_numbers() -> None:
    assert Limits(rollout_s=5).rollout_s == 5


def test_units_are_in_the_names() -> None:
    assert {name.rpartition("_")[2] for name in NAMES} == {
        "s", "bytes", "examples", "restarts", "rollout", "processes", "files", "cpus", "tokens", "sandboxes",
    }  # fmt: skip


def test_every_number_has_a_reason_beside_it() -> None:
    source = Path(limits.__file__).read_text("utf-8")
    for name in [*NAMES, *(name for name in vars(limits) if name.isupper() and name not in ("KIB", "MIB", "GIB"))]:
        assert re.search(rf'^ *{name}: .+ = .+\n *"""[A-Z].+"""$', source, flags=re.MULTILINE), name
