"""Usage is what a server says, whatever else it says, and an estimate where it says nothing of use."""

from __future__ import annotations

from typing import Any

import pytest

from runner.gateway.exchange import Usage
from runner.gateway.usage import estimated_usage, read_usage, summed


def test_usage_is_read_from_answers_of_chat_and_embeddings() -> None:
    told = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert read_usage({"usage": told}) == Usage(prompt_tokens=3, completion_tokens=4, total_tokens=7)
    embedded = {"usage": {"prompt_tokens": 3, "total_tokens": 3}}
    assert read_usage(embedded) == Usage(prompt_tokens=3, completion_tokens=0, total_tokens=3)


def test_less_in_all_than_in_part_is_not_believed() -> None:
    told = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 1}
    usage = read_usage({"usage": told})
    assert usage is not None
    assert usage.total_tokens == 7


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "usage",
        {},
        {"usage": None},
        {"usage": []},
        {"usage": {}},
        {"usage": {"total_tokens": "7", "prompt_tokens": -1, "completion_tokens": True}},
        {"usage": {"total_tokens": 2**60}},
    ],
)
def test_what_says_no_usage_has_none(answer: Any) -> None:
    assert read_usage(answer) is None


def test_four_bytes_are_a_token_where_nothing_is_said_and_the_sum_says_so() -> None:
    guess = estimated_usage(9, 4)
    assert guess == Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4, estimated=True)
    sure = Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    assert summed(sure, guess) == Usage(prompt_tokens=4, completion_tokens=2, total_tokens=6, estimated=True)
