"""What cannot cross costs its own rollout only; what can, arrives as it was."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome
from runner.limits import MAX_REWARD_BYTES, MAX_TEXT_CHARS
from runner.protocol import Outcome, Transcript, encode
from runner.worker.outcome import outcome_message, transcript_message


class NumpyLike(float):
    pass


class Text(str):
    pass


class Reason(enum.StrEnum):
    DONE = "finished"


class Point(enum.IntEnum):
    TEN = 10


@dataclass(frozen=True)
class WithMessages(RolloutAttempt):
    messages: Any = None


class Raising(RolloutAttempt):
    @property
    def messages(self) -> list[object]:
        raise RuntimeError("no messages")


def sent(rewards: Mapping[str, Any], reason: str = "finished", error: str | None = None) -> Outcome:
    message = outcome_message(1, "r", RolloutOutcome(rewards, reason, error), origin="environment")
    encode(message)
    return message


def attempt(messages: Any) -> WithMessages:
    return WithMessages(rollout_id="r", termination_reason="finished", messages=messages)


def transcript(messages: Any, limit: int = 1_000_000) -> Transcript:
    message = transcript_message(1, "r", attempt(messages), limit)
    assert message is not None
    encode(message)
    assert isinstance(msgspec.json.decode(message.messages), list)
    return message


def items(messages: Any) -> list[Any]:
    return msgspec.json.decode(transcript(messages).messages, type=list[Any])


# -- outcomes -------------------------------------------------------------------------------------------------


def test_rewards_arrive_exactly() -> None:
    rewards = {"a": 1, "b": 1.0, "c": -0.1, "d": 10**50, "e": 5e-324, "f": 1.7976931348623157e308, "é": 0}
    message = sent(rewards)
    assert message.rewards is not None
    back = msgspec.json.decode(message.rewards, type=dict[str, int | float])
    assert back == rewards
    assert [type(value) for value in back.values()] == [type(value) for value in rewards.values()]


def test_subclasses_of_numbers_and_texts_arrive_as_plain_ones() -> None:
    message = sent({Text("a"): NumpyLike(0.5), "b": Point.TEN}, Reason.DONE, Text("an error"))
    assert message.rewards == b'{"a":0.5,"b":10}'
    assert (type(message.termination_reason), message.termination_reason) == (str, "finished")
    assert (type(message.error), message.error) == (str, "an error")


def test_long_texts_are_shortened() -> None:
    message = sent({}, "r" * 10_000, "e" * 100_000)
    assert len(message.termination_reason) <= 4096
    assert message.error is not None
    assert len(message.error) <= MAX_TEXT_CHARS


def test_a_name_that_is_no_valid_text_is_shown_as_an_escape() -> None:
    assert sent({"\ud800": 1}).rewards == b'{"\\\\ud800":1}'


def test_rewards_too_large_to_cross_cost_this_rollout_only() -> None:
    message = sent({f"component-{number}": 1 for number in range(100_000)})
    assert (message.termination_reason, message.rewards, message.origin) == ("sandbox_error", b"{}", "runner")
    assert message.error is not None
    assert message.error.startswith("The rollout's rewards cannot cross to the caller: ")
    assert str(MAX_REWARD_BYTES) in message.error


def test_rewards_that_raise_when_read_cost_this_rollout_only() -> None:
    class Once(dict[str, float]):
        reads = 0

        def items(self) -> Any:
            Once.reads += 1
            if Once.reads > 1:
                raise ValueError("read twice")
            return super().items()

    value = RolloutOutcome(Once(a=1.0), "finished")
    Once.reads = 1
    message = outcome_message(1, "r", value, origin="environment")
    assert message.termination_reason == "sandbox_error"
    assert "read twice" in str(message.error)


def test_an_unscored_attempt_has_no_rewards() -> None:
    value = RolloutAttempt(rollout_id="r", termination_reason="finished")
    assert outcome_message(1, "r", value, origin="environment").rewards is None


# -- transcripts ----------------------------------------------------------------------------------------------


def test_messages_arrive_as_they_were() -> None:
    messages = [{"role": "user", "content": "é\n\u2028"}, {"role": "assistant", "tool_calls": [{"x": 1.5, "y": None}]}]
    assert items(messages) == messages
    assert items(tuple(messages)) == messages
    assert transcript(messages).omitted_bytes == 0


@pytest.mark.parametrize("messages", [None, "text", b"bytes", 5, {"role": "user"}, {1, 2}])
def test_what_is_no_sequence_of_messages_is_no_transcript(messages: Any) -> None:
    assert transcript_message(1, "r", attempt(messages), 1000) is None


def test_an_attempt_without_messages_has_no_transcript() -> None:
    assert transcript_message(1, "r", RolloutAttempt(rollout_id="r", termination_reason="x"), 1000) is None
    assert transcript_message(1, "r", Raising(rollout_id="r", termination_reason="x"), 1000) is None


def test_what_does_not_fit_is_left_out_from_the_first_message_that_does_not() -> None:
    messages = ["x" * 30, "y" * 100, "z"]
    message = transcript(messages, limit=50)
    assert json.loads(message.messages) == ["x" * 30]
    assert len(message.messages) <= 50
    assert message.omitted_bytes == len(json.dumps("y" * 100)) + len(json.dumps("z"))


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return {"content": value}


def deep(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return {"content": value}


class Odd:
    pass


class Hostile(dict[Any, Any]):
    def items(self) -> Any:
        raise SystemError("no")

    def __iter__(self) -> Any:
        raise SystemError("no")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"content": Odd()}, {"content": "<Odd>"}),
        ({"content": {1, 2}}, {"content": "<set>"}),
        ({"content": b"bytes"}, {"content": "<bytes>"}),
        ({"content": math.nan, "x": 1}, {"content": "nan", "x": 1}),
        ({"content": -math.inf}, {"content": "-inf"}),
        ({("a", 1): "x"}, {"('a', 1)": "x"}),
        ({"content": "\ud800"}, {"content": "\\ud800"}),
        ({"content": 10**5000}, {"content": "<int of 16610 bits>"}),
    ],
    ids=["object", "set", "bytes", "NaN", "infinity", "name", "surrogate", "integer"],
)
def test_a_value_that_json_cannot_hold_is_shown_and_the_rest_is_kept(value: Any, shown: Any) -> None:
    assert items([{"role": "user"}, value, {"role": "tool"}]) == [{"role": "user"}, shown, {"role": "tool"}]


@pytest.mark.parametrize("value", [circular(), deep(100_000), Hostile(a=1)], ids=["circular", "deep", "hostile"])
def test_a_message_that_cannot_be_shown_does_not_change_how_its_rollout_ends(value: Any) -> None:
    shown = items([{"role": "user"}, value, {"role": "tool"}])
    assert len(shown) == 3
    assert (shown[0], shown[2]) == ({"role": "user"}, {"role": "tool"})
