"""What cannot cross costs its own rollout only; what can, arrives as it was."""

from __future__ import annotations

import enum
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome
from runner.frames import FrameParser
from runner.limits import (
    MAX_PLAIN_CHARS,
    MAX_PLAIN_OUTCOMES,
    MAX_PLAIN_REWARDS,
    MAX_REWARD_BYTES,
    MAX_TEXT_CHARS,
    MAX_TRANSCRIPT_VALUES,
)
from runner.protocol import GroupDone, Outcome, PlainOutcome, Transcript, encode, from_worker_decoder
from runner.transcript import decoded, values
from runner.worker.outcome import outcome_message, short_answer, transcript_message


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
    decoded(message.messages)
    assert values(message.messages, exact=True) <= MAX_TRANSCRIPT_VALUES
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
    assert message.error == "The rollout's outcome cannot cross to the caller: 100000 rewards, the limit is 10000."
    message = sent({"x" * MAX_REWARD_BYTES: 1})
    assert (message.termination_reason, message.rewards, message.origin) == ("sandbox_error", b"{}", "runner")
    assert f"bytes of rewards as JSON, the limit is {MAX_REWARD_BYTES}" in str(message.error)


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "the reward 'x' is nan, expected a finite number"),
        (-math.inf, "the reward 'x' is -inf, expected a finite number"),
        (True, "a reward is a bool, expected a number"),
        ("0.5", "a reward is a str, expected a number"),
        (Decimal("0.5"), "a reward is a Decimal, expected a number"),
        (Fraction(1, 2), "a reward is a Fraction, expected a number"),
        (0.5 + 0j, "a reward is a complex, expected a number"),
        (None, "a reward is a NoneType, expected a number"),
        (10**400, "int too large to convert to float"),
        (lambda: 1, "a reward is a function, expected a number"),
    ],
)
def test_a_map_that_became_invalid_after_its_outcome_was_made_costs_this_rollout_only(value: Any, text: str) -> None:
    rewards: dict[str, Any] = {"x": 1.0}
    outcome = RolloutOutcome(rewards, "finished")
    rewards["x"] = value
    message = outcome_message(1, "r", outcome, origin="environment")
    encode(message)
    assert (message.termination_reason, message.rewards, message.origin) == ("sandbox_error", b"{}", "runner")
    assert message.error == f"The rollout's outcome cannot cross to the caller: {text}"


@pytest.mark.parametrize("name", ["", " ", 5, None, b"x", ("a",)])
def test_a_name_that_became_invalid_costs_this_rollout_only(name: Any) -> None:
    rewards: dict[Any, Any] = {"x": 1.0}
    outcome = RolloutOutcome(rewards, "finished")
    rewards[name] = 1.0
    assert outcome_message(1, "r", outcome, origin="environment").termination_reason == "sandbox_error"


def test_names_that_would_become_one_cost_this_rollout_only() -> None:
    message = sent({"\ud800": 1, "\\ud800": 2})
    assert message.termination_reason == "sandbox_error"
    assert "look alike" in str(message.error)


class LyingNumber(float):
    def __float__(self) -> float:
        raise RuntimeError("asked")


class LyingInteger(int):
    def __int__(self) -> int:
        raise RuntimeError("asked")

    __index__ = __trunc__ = __int__


class LyingName(str):
    def __str__(self) -> str:
        raise RuntimeError("asked")


def test_numbers_and_names_are_taken_for_what_they_are_not_for_what_they_say() -> None:
    assert sent({"a": LyingNumber(0.5), LyingName("b"): LyingInteger(7)}).rewards == b'{"a":0.5,"b":7}'


class Odder(RolloutOutcome):
    """Its fields are answers to questions, and the answers are its own."""

    answers: Mapping[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        answer = object.__getattribute__(self, "answers").get(name, object.__getattribute__(self, name))
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize("name", ["termination_reason", "error", "rewards"])
@pytest.mark.parametrize(
    "answer", [5, b"x", " ", object(), RuntimeError("asked")], ids=["number", "bytes", "blank", "object", "raises"]
)
def test_a_field_that_is_anything_costs_this_rollout_only(name: str, answer: Any) -> None:
    kind: Any = type("Oddest", (Odder,), {})
    outcome = kind({}, "finished")
    kind.answers = {name: answer}
    message = outcome_message(1, "r", outcome, origin="environment")
    encode(message)
    assert (message.termination_reason, message.rewards, message.origin) == ("sandbox_error", b"{}", "runner")


def test_an_unscored_attempt_has_no_rewards() -> None:
    value = RolloutAttempt(rollout_id="r", termination_reason="finished")
    assert outcome_message(1, "r", value, origin="environment").rewards is None


# -- a whole group in short -----------------------------------------------------------------------------------


def short(*outcomes: RolloutOutcome, seconds: Mapping[str, float] | None = None) -> list[PlainOutcome] | None:
    frame = short_answer(7, {f"r{number}": outcome for number, outcome in enumerate(outcomes)}, seconds or {})
    if frame is None:
        return None
    (body,) = FrameParser().feed(frame)
    message = from_worker_decoder().decode(body)
    assert isinstance(message, GroupDone)
    assert message.call == 7
    return message.outcomes


def test_plain_outcomes_of_a_group_arrive_exactly_in_one_message() -> None:
    rewards = {"a": 1, "b": 1.0, "c": -0.0, "d": 2**63 - 1, "e": -(2**63), "f": 5e-324, "é": 1.7976931348623157e308}
    found = short(RolloutOutcome(rewards, "finished"), RolloutOutcome({}, "judge_error"), seconds={"r1": 0.5})
    assert found is not None
    first, second = found
    assert first == PlainOutcome(termination_reason="finished", rewards=rewards)
    assert [repr(value) for value in first.rewards.values()] == [repr(value) for value in rewards.values()]
    assert second == PlainOutcome(termination_reason="judge_error", rewards={}, seconds=0.5)


class OutcomeOfItsOwn(RolloutOutcome):
    pass


class Mapped(dict[str, float]):
    pass


@pytest.mark.parametrize(
    "outcome",
    [
        RolloutOutcome({}, "model_error", "an error"),
        RolloutOutcome({"x": 2**63}, "finished"),
        RolloutOutcome({"x": -(2**63) - 1}, "finished"),
        RolloutOutcome({"x" * (MAX_PLAIN_CHARS + 1): 1}, "finished"),
        RolloutOutcome({}, "x" * (MAX_PLAIN_CHARS + 1)),
        RolloutOutcome({str(number): 1 for number in range(MAX_PLAIN_REWARDS + 1)}, "finished"),
        RolloutOutcome({"\ud800": 1}, "finished"),
        RolloutOutcome({}, Reason.DONE),
        RolloutOutcome(Mapped(x=1), "finished"),
        OutcomeOfItsOwn({}, "finished"),
    ],
    ids=["error", "large", "small", "name", "reason", "many", "surrogate", "text class", "map class", "outcome class"],
)
def test_one_outcome_that_is_not_plain_takes_the_long_form_for_all(outcome: RolloutOutcome) -> None:
    assert short(RolloutOutcome({}, "finished"), outcome) is None


@pytest.mark.parametrize(
    "rewards", [{"": 1}, {" ": 1}, {1: 1}, {"x": math.nan}, {"x": math.inf}, {"x": True}, {"x": None}]
)
def test_a_map_that_was_changed_after_it_was_found_valid_is_not_plain(rewards: Any) -> None:
    changed: dict[str, float] = {}
    outcome = RolloutOutcome(changed, "finished")
    changed.update(rewards)
    assert short(outcome) is None


def test_a_large_group_takes_the_long_form() -> None:
    assert short(*[RolloutOutcome({}, "finished")] * MAX_PLAIN_OUTCOMES) is not None
    assert short(*[RolloutOutcome({}, "finished")] * (MAX_PLAIN_OUTCOMES + 1)) is None


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


@pytest.mark.parametrize("item", [[], {}, 1, {"a": 1}], ids=repr)
def test_more_values_than_cross_are_left_out_from_the_first_message_that_is_too_many(item: Any) -> None:
    few, many = {"content": [item] * 10}, {"content": [item] * MAX_TRANSCRIPT_VALUES}
    message = transcript([few, few, many, few], limit=10 * MAX_TRANSCRIPT_VALUES)
    assert json.loads(message.messages) == [few, few]
    assert message.omitted_bytes == len(json.dumps(many)) + len(json.dumps(few))


def test_punctuation_in_texts_is_not_taken_for_values() -> None:
    messages = [{"content": "[{,:" * MAX_TRANSCRIPT_VALUES}, {"content": [1] * 1000}]
    message = transcript(messages, limit=10 * MAX_TRANSCRIPT_VALUES)
    assert json.loads(message.messages) == messages
    assert message.omitted_bytes == 0


class Endless(list[str]):
    def __iter__(self) -> Any:
        return itertools.repeat("x")


class Unwilling(list[str]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")


def test_a_sequence_without_end_has_its_beginning_told() -> None:
    message = transcript(Endless(), limit=100)
    assert len(json.loads(message.messages)) == 24
    assert message.omitted_bytes > 0


def test_a_sequence_that_raises_is_no_transcript() -> None:
    assert transcript_message(1, "r", attempt(Unwilling("ab")), 1000) is None


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


@pytest.mark.parametrize(
    "value", [circular(), deep(100_000), deep(98), Hostile(a=1)], ids=["circular", "deeper", "deep", "hostile"]
)
def test_a_message_that_cannot_be_shown_does_not_change_how_its_rollout_ends(value: Any) -> None:
    shown = items([{"role": "user"}, value, {"role": "tool"}])
    assert len(shown) == 3
    assert (shown[0], shown[2]) == ({"role": "user"}, {"role": "tool"})
