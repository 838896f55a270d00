"""The shared data types: validation, forms of pickling, generics."""

from __future__ import annotations

import math
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, get_args

import cloudpickle  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    DatasetSplit,
    Environment,
    Example,
    JsonlDataset,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutOutcome,
    RolloutRequest,
    StaticBearerAuth,
    ValidationDiagnostic,
    shared_types,
)

AUTH = StaticBearerAuth("t")
EXAMPLE: Example[Any] = Example("e", {})
BLANKS: list[Any] = ["", " ", "\n\t", None, 3, b"x"]


def request(**changes: Any) -> RolloutRequest[Any]:
    arguments: dict[str, Any] = {
        "rollout_id": "r",
        "example": EXAMPLE,
        "model": "m",
        "base_url": "http://model.example/v1",
        "model_auth": AUTH,
    }
    return RolloutRequest(**{**arguments, **changes})


@pytest.mark.parametrize("blank", BLANKS)
def test_an_example_refuses_a_blank_id(blank: Any) -> None:
    with pytest.raises(ValueError, match=r"Example\.id"):
        Example(blank, {})


def test_an_example_keeps_its_payload_and_does_not_strip_its_id() -> None:
    payload: dict[str, Any] = {}
    example = Example(" e ", payload)
    assert example.payload is payload
    assert example.id == " e "


def test_a_request_takes_its_fields_in_this_order_and_trains_by_default() -> None:
    made = RolloutRequest("r", EXAMPLE, "m", "http://u", AUTH)
    assert (made.rollout_id, made.example, made.model, made.base_url, made.model_auth, made.split) == (
        "r",
        EXAMPLE,
        "m",
        "http://u",
        AUTH,
        "train",
    )
    assert RolloutRequest("r", EXAMPLE, "m", "http://u", AUTH, "eval").split == "eval"


@pytest.mark.parametrize("name", ["rollout_id", "model", "base_url"])
@pytest.mark.parametrize("blank", BLANKS)
def test_a_request_refuses_blank_texts(name: str, blank: Any) -> None:
    with pytest.raises(ValueError, match=name):
        request(**{name: blank})


def test_a_request_checks_in_the_order_of_its_fields() -> None:
    wrong: dict[str, Any] = {"rollout_id": "", "model": "", "base_url": "", "model_auth": None, "split": "x"}
    for name in ("rollout_id", "model", "base_url"):
        with pytest.raises(ValueError, match=rf"RolloutRequest\.{name}"):
            request(**wrong)
        del wrong[name]
    with pytest.raises(TypeError, match="ModelAuth"):
        request(**wrong)
    del wrong["model_auth"]
    with pytest.raises(ValueError, match="split must be 'train' or 'eval'"):
        request(**wrong)


def test_a_request_leaves_its_auth_out_of_repr_and_does_not_check_its_example() -> None:
    assert "model_auth" not in repr(request())
    unchecked: Any = request(example="anything")
    assert unchecked.example == "anything"


def test_an_attempt_is_keyword_only_and_unscored_by_default() -> None:
    positional: Any = RolloutAttempt
    with pytest.raises(TypeError):
        positional("r", "finished")
    attempt = RolloutAttempt(rollout_id="r", termination_reason="anything at all")
    assert attempt.rewards is None
    assert attempt.error is None


@pytest.mark.parametrize("blank", BLANKS)
def test_an_attempt_refuses_blank_ids_and_reasons(blank: Any) -> None:
    with pytest.raises(ValueError, match="rollout_id"):
        RolloutAttempt(rollout_id=blank, termination_reason="finished")
    with pytest.raises(ValueError, match="termination_reason"):
        RolloutAttempt(rollout_id="r", termination_reason=blank)


def attempt_with(rewards: Any = None, error: Any = None) -> RolloutAttempt:
    return RolloutAttempt(rollout_id="r", termination_reason="finished", rewards=rewards, error=error)


def outcome_with(rewards: Any = MappingProxyType({}), error: Any = None) -> RolloutOutcome:
    return RolloutOutcome(rewards, "finished", error)


def subclass_with(rewards: Any = None, error: Any = None) -> BaseRollout:
    return BaseRollout(
        rollout_id="r", termination_reason="finished", rewards=rewards, error=error, messages=[], example_args={}
    )


HOLDERS = pytest.mark.parametrize("holder", [attempt_with, outcome_with, subclass_with])


@HOLDERS
@pytest.mark.parametrize("error", ["", " ", 3, b"x"])
def test_an_error_is_none_or_a_visible_text(holder: Callable[..., Any], error: Any) -> None:
    with pytest.raises(ValueError, match="error"):
        holder(error=error)
    assert holder(error=" x ").error == " x "


@HOLDERS
@pytest.mark.parametrize("rewards", [[], [("a", 1.0)], "a", 3, {"a"}])
def test_rewards_that_are_no_mapping_are_a_type_error(holder: Callable[..., Any], rewards: Any) -> None:
    with pytest.raises(TypeError, match="mapping"):
        holder(rewards=rewards)


def test_an_outcome_needs_rewards_which_may_be_empty() -> None:
    missing: Any = None
    with pytest.raises(TypeError, match="mapping"):
        RolloutOutcome(missing, "finished")
    assert RolloutOutcome({}, "finished").rewards == {}


@HOLDERS
@pytest.mark.parametrize("key", ["", "  ", None, 1, ("a",)])
def test_reward_names_are_non_empty_strings(holder: Callable[..., Any], key: Any) -> None:
    with pytest.raises(ValueError, match="non-empty strings"):
        holder(rewards={key: 1.0})


@HOLDERS
@pytest.mark.parametrize("value", [True, False, "1", None, 1j, [1.0]])
def test_reward_values_are_numeric_and_no_booleans(holder: Callable[..., Any], value: Any) -> None:
    with pytest.raises(ValueError, match="numeric"):
        holder(rewards={"a": value})


@HOLDERS
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reward_values_are_finite(holder: Callable[..., Any], value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        holder(rewards={"a": value})


@HOLDERS
def test_a_reward_too_large_for_a_float_is_an_overflow(holder: Callable[..., Any]) -> None:
    with pytest.raises(OverflowError):
        holder(rewards={"a": 10**400})


@HOLDERS
def test_rewards_may_be_any_mapping_negative_above_one_and_whole(holder: Callable[..., Any]) -> None:
    kept = holder(rewards=MappingProxyType({"a": -3, "b": 7.5, "c": 2**80})).rewards
    assert dict(kept) == {"a": -3, "b": 7.5, "c": 2**80}
    assert isinstance(kept["a"], int)


VALUES = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text(max_size=3), st.just(10**400)
)
NAMES = st.one_of(st.text(max_size=4), st.integers(), st.none())


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_reward_map_is_accepted_exactly_if_every_entry_keeps_the_rules(rewards: dict[Any, Any]) -> None:
    def is_legal(key: Any, value: Any) -> bool:
        if not isinstance(key, str) or not key.strip() or type(value) not in (int, float):
            return False
        return bool(abs(value) < 2**1000 and value == value)

    if all(is_legal(key, value) for key, value in rewards.items()):
        assert attempt_with(rewards).rewards is rewards
        assert outcome_with(rewards).rewards is rewards
    else:
        for holder in (attempt_with, outcome_with):
            with pytest.raises((ValueError, OverflowError)):
                holder(rewards)


@pytest.mark.parametrize("reason", [*BLANKS, "finished"])
def test_a_failure_refuses_blank_reasons_and_finished(reason: Any) -> None:
    with pytest.raises(ValueError, match="termination_reason"):
        RolloutFailure(reason, "message")


@pytest.mark.parametrize("message", BLANKS)
def test_a_failure_refuses_a_blank_message(message: Any) -> None:
    with pytest.raises(ValueError, match="message"):
        RolloutFailure("tool_error", message)


def test_a_failure_is_a_runtime_error_whose_text_is_its_message() -> None:
    failure = RolloutFailure("tool_error", "the tool broke")
    assert isinstance(failure, RuntimeError)
    assert str(failure) == "the tool broke"
    assert failure.termination_reason == "tool_error"


def test_a_diagnostic_is_not_validated() -> None:
    unusual: Any = "fatal"
    assert ValidationDiagnostic(unusual, "", "").location is None


INSTANCES: list[tuple[Any, list[Any]]] = [
    (EXAMPLE, ["e", {}]),
    (request(), ["r", EXAMPLE, "m", "http://model.example/v1", AUTH, "train"]),
    (attempt_with({"a": 1}, "x"), ["r", "finished", {"a": 1}, "x"]),
    (outcome_with({"a": 1}, "x"), [{"a": 1}, "finished", "x"]),
    (subclass_with({"a": 1}), ["r", "finished", {"a": 1}, None, [], {}, "train"]),
    (ValidationDiagnostic("error", "c", "m"), ["error", "c", "m", None]),
]


@pytest.mark.parametrize(("instance", "state"), INSTANCES, ids=lambda value: type(value).__name__)
def test_instances_are_frozen_slotted_and_pickle_as_the_list_of_their_fields(instance: Any, state: list[Any]) -> None:
    assert not hasattr(instance, "__dict__")
    with pytest.raises(AttributeError):
        setattr(instance, next(iter(instance.__dataclass_fields__)), "x")
    assert instance.__reduce_ex__(4)[2] == state
    assert pickle.loads(pickle.dumps(instance)) == instance
    assert pickle.loads(cloudpickle.dumps(instance)) == instance


@pytest.mark.parametrize("instance", [EXAMPLE, request()], ids=["Example", "RolloutRequest"])
def test_assigning_and_deleting_any_attribute_is_refused(instance: Any) -> None:
    for name in ("id", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(instance, name, 1)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(instance, name)


def test_unpickling_runs_no_validation() -> None:
    blank = pickle.loads(pickle.dumps(EXAMPLE).replace(b"\x8c\x01e", b"\x8c\x01 "))
    assert blank.id == " "


@pytest.mark.parametrize(
    ("generic", "arity"),
    [(Environment, 2), (Example, 1), (RolloutRequest, 1), (Dataset, 1), (JsonlDataset, 1)],
)
def test_generic_classes_take_exactly_their_number_of_parameters(generic: Any, arity: int) -> None:
    parameters = (dict, RolloutAttempt, int)
    assert generic[parameters[:arity]].__args__ == parameters[:arity]
    assert pickle.loads(pickle.dumps(generic[parameters[:arity]])) == generic[parameters[:arity]]
    with pytest.raises(TypeError):
        generic[parameters[: arity + 1]]


@pytest.mark.parametrize("plain", [BaseEnv, BaseRollout, RolloutAttempt, RolloutOutcome])
def test_other_classes_take_no_parameters(plain: Any) -> None:
    with pytest.raises(TypeError):
        plain[int]


def test_a_subscripted_class_constructs() -> None:
    assert Example[int]("e", 1) == Example("e", 1)
    assert RolloutRequest[Any]("r", EXAMPLE, "m", "u", AUTH) == RolloutRequest("r", EXAMPLE, "m", "u", AUTH)
    assert len(Dataset[int]([Example("e", 1)])) == 1


def test_subclasses_of_attempts_may_add_fields_and_subscribe_environments() -> None:
    class Mine(Environment[dict[str, Any], BaseRollout]):
        pass

    assert "create_dataset" in Mine.__abstractmethods__


def test_splits_are_train_and_eval() -> None:
    assert get_args(DatasetSplit) == ("train", "eval")


def test_reward_map_pickles_as_an_attribute_of_its_module() -> None:
    for pickled in (pickle.dumps(RewardMap), cloudpickle.dumps(RewardMap)):
        texts = [argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)]
        assert texts == ["benchmax.envs.shared_types", "RewardMap"]
        assert pickle.loads(pickled) is shared_types.RewardMap


def test_reward_map_is_an_alias_with_name_and_value() -> None:
    alias: Any = RewardMap
    assert repr(alias) == alias.__name__ == "RewardMap"
    assert alias.__value__ == Mapping[str, float]
    assert get_args(alias | None) == (alias, type(None))
    assert get_args(None | alias) == (type(None), alias)


def test_a_class_annotated_with_reward_map_survives_cloudpickle_by_value() -> None:
    namespace: dict[str, Any] = {"__name__": "somewhere_else"}
    source = (
        "from benchmax.envs import RewardMap\n"
        "class Mine:\n"
        "    def plain(self) -> RewardMap: ...\n"
        "    def optional(self) -> RewardMap | None: ...\n"
    )
    exec(compile(source, "somewhere_else", "exec", dont_inherit=True), namespace)
    reader = (
        "import pickle, sys, typing\n"
        "from benchmax.envs import shared_types\n"
        "loaded = pickle.load(sys.stdin.buffer)\n"
        "assert loaded.plain.__annotations__['return'] is shared_types.RewardMap\n"
        "assert typing.get_type_hints(loaded.optional)['return'] == shared_types.RewardMap | None\n"
    )
    subprocess.run([sys.executable, "-c", reader], input=cloudpickle.dumps(namespace["Mine"]), check=True)
