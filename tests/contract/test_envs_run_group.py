"""How a group of sibling rollouts is run, classified and scored."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.envs import (
    Dataset,
    DatasetSplit,
    Environment,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutOutcome,
    RolloutRequest,
    StaticBearerAuth,
)
from benchmax.envs.environment import freeze_requests, settle_termination_reason
from benchmax.envs.logging import _CURRENT_GROUP_RIDS, _CURRENT_ROLLOUT_ID
from tests.collecting import cyclic_garbage

LOGGER = "benchmax.envs.environment"
SCORABLE = ["finished", "context_exceeded", "output_exceeded", "max_turns_exceeded", "tool_budget_exceeded"]
GroupScorer = Callable[[Sequence[RolloutAttempt]], Any]


def request(rollout_id: str, *, example: str = "e", split: DatasetSplit = "train") -> RolloutRequest[Any]:
    return RolloutRequest(rollout_id, Example(example, {}), "m", "http://model.example", StaticBearerAuth("t"), split)


def requests(*rollout_ids: str) -> list[RolloutRequest[Any]]:
    return [request(rollout_id) for rollout_id in rollout_ids]


def attempt(rollout_id: str, reason: str = "finished", rewards: Any = None, error: str | None = None) -> RolloutAttempt:
    return RolloutAttempt(rollout_id=rollout_id, termination_reason=reason, rewards=rewards, error=error)


class Scripted(Environment[Any, RolloutAttempt]):
    """Runs what a test says for each rollout id, and scores groups with what it says."""

    def __init__(self, results: Mapping[str, Any], group: Any = None) -> None:
        self.results = results
        self.group = group
        self.scored: list[list[str]] = []

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[Any]:
        return Dataset([])

    async def run_rollout(self, request: RolloutRequest[Any]) -> RolloutAttempt:
        result = self.results[request.rollout_id]
        if callable(result):
            result = await result()
        if isinstance(result, BaseException):
            raise result
        returned: RolloutAttempt = result
        return returned

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap] | None:
        self.scored.append([rollout.rollout_id for rollout in rollouts])
        result = self.group(rollouts) if callable(self.group) else self.group
        if isinstance(result, BaseException):
            raise result
        rewards: Mapping[str, RewardMap] | None = result
        return rewards


async def outcomes(results: Mapping[str, Any], group: Any = None) -> Mapping[str, RolloutOutcome]:
    return await Scripted(results, group).run_group(requests(*results))


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == LOGGER]


# Freezing


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ([], "at least one"),
        ([request("a"), request("a", example="f", split="eval")], "duplicate rollout IDs"),
        ([request("a"), request("b", example="f", split="eval")], "one example"),
        ([request("a"), request("b", split="eval")], "one split"),
    ],
)
async def test_requests_that_are_no_group_are_refused_in_this_order_before_anything_runs(
    group: list[RolloutRequest[Any]], text: str
) -> None:
    environment = Scripted({})
    with pytest.raises(ValueError, match=text):
        await environment.run_group(group)
    with pytest.raises(ValueError, match=text):
        freeze_requests(group)


def test_requests_for_equal_example_ids_are_one_group_and_are_copied() -> None:
    group = requests("a", "b")
    assert group[0].example is not group[1].example
    frozen = freeze_requests(iter(group))
    assert frozen == tuple(group)


# Running


async def test_rollouts_run_concurrently_in_named_tasks_under_their_rollout_context() -> None:
    together = asyncio.Barrier(3)
    seen: dict[str, str | None] = {}

    def run(rollout_id: str) -> Callable[[], Awaitable[RolloutAttempt]]:
        async def rollout() -> RolloutAttempt:
            await together.wait()
            task = asyncio.current_task()
            assert task is not None
            seen[task.get_name()] = _CURRENT_ROLLOUT_ID.get()
            return attempt(rollout_id, rewards={"x": 1.0})

        return rollout

    await outcomes({rollout_id: run(rollout_id) for rollout_id in "abc"})
    assert seen == {"benchmax-rollout-a": "a", "benchmax-rollout-b": "b", "benchmax-rollout-c": "c"}
    assert _CURRENT_ROLLOUT_ID.get() is None


@pytest.mark.parametrize("result", [None, {}, "finished", RolloutOutcome({}, "finished")])
async def test_a_rollout_must_return_an_attempt(result: Any) -> None:
    with pytest.raises(TypeError, match=r"expected RolloutAttempt.*"):
        await outcomes({"a": result})


async def test_a_group_leaves_nothing_for_the_cyclic_collector() -> None:
    async def one_turn_later(rollout_id: str) -> RolloutAttempt:
        await asyncio.sleep(0)
        return attempt(rollout_id, rewards={"x": 1.0})

    environment = Scripted({"a": attempt("a", rewards={"x": 1.0}), "b": lambda: one_turn_later("b")})
    assert await cyclic_garbage(lambda: environment.run_group(requests("a", "b"))) == 0


async def test_a_rollout_must_return_its_own_id() -> None:
    with pytest.raises(ValueError, match="wrong rollout ID"):
        await outcomes({"a": attempt("b", rewards={"x": 1.0})})


async def test_a_defect_waits_for_all_siblings_and_is_raised_as_the_same_object() -> None:
    defect = KeyError("bug")
    ended: list[str] = []

    async def slow() -> RolloutAttempt:
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append("b")
        return attempt("b", rewards={"x": 1.0})

    environment = Scripted({"a": defect, "b": slow})
    with pytest.raises(KeyError) as caught:
        await environment.run_group(requests("a", "b"))
    assert caught.value is defect
    assert ended == ["b"]
    assert environment.scored == []


async def test_cancelling_a_group_cancels_its_rollouts_waits_for_them_and_then_raises() -> None:
    started = asyncio.Event()
    cleaned: list[str] = []

    async def stubborn() -> RolloutAttempt:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cleaned.append("stubborn")
        raise AssertionError("unreachable")

    async def quick() -> RolloutAttempt:
        raise KeyError("nobody retrieves this")

    group = asyncio.create_task(outcomes({"a": stubborn, "b": quick}))
    await started.wait()
    group.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await group
    assert cleaned == ["stubborn"]


async def test_a_second_cancellation_does_not_abandon_rollouts_that_wind_down() -> None:
    winding_down = asyncio.Event()
    may_end = asyncio.Event()
    cleaned: list[str] = []

    async def slow_to_leave() -> RolloutAttempt:
        try:
            await asyncio.Event().wait()
        finally:
            winding_down.set()
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            cleaned.append("left")
        raise AssertionError("unreachable")

    group = asyncio.create_task(outcomes({"a": slow_to_leave}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    group.cancel()
    await winding_down.wait()
    group.cancel()
    with pytest.raises(asyncio.CancelledError):
        await group
    assert cleaned == ["left"]


# Classifying


@pytest.mark.parametrize("reason", ["tool_error", "finished_oddly", "max_turns_exceeded", "context_exceeded"])
async def test_a_failure_becomes_an_outcome_with_its_reason_and_never_reaches_group_scoring(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    environment = Scripted({"a": RolloutFailure(reason, "it broke"), "b": attempt("b", rewards={"x": 1.0})})
    result = await environment.run_group(requests("a", "b"))
    assert result["a"] == RolloutOutcome({}, reason, "it broke")
    assert environment.scored == [["b"]]
    assert messages(caplog) == [
        (logging.ERROR, f"benchmax.rollout.failed rollout_id=a termination_reason={reason}: it broke")
    ]
    assert caplog.records[0].exc_info is not None


async def test_a_rollout_that_cancels_itself_is_a_defect() -> None:
    with pytest.raises(asyncio.CancelledError):
        await outcomes({"a": asyncio.CancelledError(), "b": attempt("b", rewards={"x": 1.0})})


async def test_the_first_defect_in_request_order_is_raised_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def late() -> RolloutAttempt:
        await asyncio.sleep(0)
        raise KeyError("first in order")

    with pytest.raises(KeyError, match="first in order"):
        await outcomes({"a": late, "b": LookupError("second"), "c": OSError("third")})
    logged = [(record.levelno, record.getMessage(), record.exc_info) for record in caplog.records]
    assert [level for level, _, _ in logged] == [logging.ERROR, logging.ERROR]
    assert all("additional rollout contract error" in text and trace for _, text, trace in logged)


@pytest.mark.parametrize("rewards", [None, {}, {"x": 0, "y": 0.0, "z": -0.0}])
async def test_an_attempt_that_is_not_scorable_keeps_its_empty_or_zero_rewards(
    rewards: Any, caplog: pytest.LogCaptureFixture
) -> None:
    environment = Scripted({"a": attempt("a", "harness_timeout", rewards, "late")})
    result = await environment.run_group(requests("a"))
    assert result == {"a": RolloutOutcome(rewards or {}, "harness_timeout", "late")}
    assert environment.scored == []
    assert messages(caplog) == [
        (logging.WARNING, "benchmax.rollout.terminated rollout_id=a termination_reason=harness_timeout")
    ]


@pytest.mark.parametrize("value", [0.1, -1, 1])
async def test_an_attempt_that_is_not_scorable_with_other_rewards_is_an_error_ahead_of_defects(value: float) -> None:
    with pytest.raises(ValueError, match="non-zero rewards"):
        await outcomes({"a": KeyError("defect"), "b": attempt("b", "tool_error", {"x": value})})


async def test_defects_that_are_not_raised_leave_no_complaint_of_the_event_loop() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with pytest.raises(ValueError, match="non-zero rewards"):
        await outcomes({"a": attempt("a", "tool_error", {"x": 1}), "b": KeyError("defect"), "c": KeyError("another")})
    gc.collect()
    assert complaints == []


async def test_an_attempt_constructed_with_bad_rewards_is_a_defect_of_its_own_rollout() -> None:
    async def bad() -> RolloutAttempt:
        return attempt("a", rewards={"x": float("nan")})

    with pytest.raises(ValueError, match="finite"):
        await outcomes({"a": bad})


@pytest.mark.parametrize("reason", SCORABLE)
async def test_a_budget_stop_is_scored_and_warned_about_and_a_finish_is_not_warned_about(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await outcomes({"a": attempt("a", reason, {"x": 1}, "noted")})
    assert result == {"a": RolloutOutcome({"x": 1}, reason, "noted")}
    assert len(messages(caplog)) == (0 if reason == "finished" else 1)


def test_the_class_itself_tells_which_reasons_are_scorable() -> None:
    assert Environment.scorable_termination_reasons == frozenset(SCORABLE)


async def test_scorable_reasons_are_read_through_the_instance() -> None:
    environment = Scripted({"a": attempt("a", "odd", {"x": 1}), "b": attempt("b", "finished", {"x": 0})})
    environment.scorable_termination_reasons = frozenset({"odd"})  # type: ignore[misc]
    result = await environment.run_group(requests("a", "b"))
    assert environment.scored == [["a"]]
    assert result["a"].rewards == {"x": 1}


def test_an_environment_has_these_defaults_without_calling_its_constructor() -> None:
    class NoSuper(Scripted):
        def __init__(self) -> None:
            pass

    environment = NoSuper()
    assert environment.requires_public_model_endpoint is False
    assert environment.validation_diagnostics() == ()


async def test_closing_does_nothing_and_group_rewards_are_none_by_default() -> None:
    environment = Scripted({})
    await environment.aclose()
    assert await Environment.compute_group_rewards(environment, []) is None


def test_dataset_and_rollout_are_abstract() -> None:
    abstract: Any = Environment
    with pytest.raises(TypeError, match=r"create_dataset.*run_rollout"):
        abstract()


# Group scoring


async def test_the_group_hook_gets_the_scorable_attempts_in_request_order_under_their_group_context() -> None:
    seen: list[Any] = []

    def score(rollouts: Sequence[RolloutAttempt]) -> Any:
        seen.append((list(rollouts), _CURRENT_GROUP_RIDS.get()))
        return {rollout.rollout_id: {"g": 1.0} for rollout in rollouts}

    first, last = attempt("c", rewards={"x": 1}), attempt("a", "max_turns_exceeded")
    result = await outcomes({"c": first, "b": attempt("b", "tool_error"), "a": last}, score)
    assert seen == [([first, last], ("c", "a"))]
    assert list(result) == ["c", "b", "a"]
    assert result["c"].rewards == {"x": 1, "g": 1.0}
    assert list(result["c"].rewards) == ["x", "g"]
    assert result["a"] == RolloutOutcome({"g": 1.0}, "max_turns_exceeded")
    assert _CURRENT_GROUP_RIDS.get() is None


async def test_a_group_without_scorable_attempts_is_not_scored() -> None:
    environment = Scripted({"a": attempt("a", "tool_error"), "b": RolloutFailure("tool_error", "x")})
    await environment.run_group(requests("a", "b"))
    assert environment.scored == []


BAD_GROUP_REWARDS: list[tuple[Any, str]] = [
    ([], "TypeError: "),
    ({1: {}, "b": {}}, "TypeError: "),
    ({"a": {}}, "missing=['b'] unknown=[]"),
    ({"z": {}, "a": {}, "y": {}}, "missing=['b'] unknown=['y', 'z']"),
    ({"a": {}, "b": []}, "TypeError: "),
    ({"a": {"x": 2.0}, "b": {}}, "duplicate keys"),
]


@pytest.mark.parametrize(("group", "text"), BAD_GROUP_REWARDS)
async def test_group_rewards_that_break_a_rule_cost_every_scorable_rollout_its_rewards(
    group: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await outcomes({"a": attempt("a", rewards={"x": 1}), "b": attempt("b", rewards={"x": 1})}, group)
    for outcome in result.values():
        assert outcome.rewards == {}
        assert outcome.termination_reason == "group_reward_error"
        assert text in (outcome.error or "")
    ((level, message),) = messages(caplog)
    assert level == logging.ERROR
    assert message.startswith("benchmax.rollout.failed rollout_id=group termination_reason=group_reward_error: ")
    assert caplog.records[0].exc_info is not None


async def test_one_finished_rollout_without_rewards_costs_its_siblings_theirs() -> None:
    result = await outcomes({"a": attempt("a", rewards={"x": 1}), "b": attempt("b")})
    assert [outcome.termination_reason for outcome in result.values()] == ["group_reward_error"] * 2
    assert all("no rewards" in (outcome.error or "") for outcome in result.values())


async def test_a_budget_stop_may_end_without_rewards() -> None:
    result = await outcomes({"a": attempt("a", "output_exceeded"), "b": attempt("b", rewards={"x": 1})})
    assert result["a"] == RolloutOutcome({}, "output_exceeded")


async def test_a_failure_of_the_hook_settles_every_scorable_rollout_with_its_reason() -> None:
    result = await outcomes(
        {
            "a": attempt("a", rewards={"x": 1}),
            "b": attempt("b", "max_turns_exceeded", {"x": 1}),
            "c": attempt("c", rewards={}, error="earlier"),
            "d": attempt("d", "tool_error"),
        },
        RolloutFailure("judge_error", "judge is away"),
    )
    assert result == {
        "a": RolloutOutcome({}, "judge_error", "judge is away"),
        "b": RolloutOutcome({}, "max_turns_exceeded", "judge is away"),
        "c": RolloutOutcome({}, "judge_error", "earlier"),
        "d": RolloutOutcome({}, "tool_error"),
    }


async def test_another_exception_of_the_hook_is_named_by_type_and_does_not_propagate() -> None:
    result = await outcomes({"a": attempt("a", rewards={"x": 1})}, KeyError("k"))
    assert result == {"a": RolloutOutcome({}, "group_reward_error", "KeyError: 'k'")}


async def test_a_cancelled_hook_propagates() -> None:
    with pytest.raises(asyncio.CancelledError):
        await outcomes({"a": attempt("a", rewards={"x": 1})}, asyncio.CancelledError())


async def test_a_budget_stop_with_failed_scoring_still_gets_group_rewards_and_keeps_its_error() -> None:
    result = await outcomes({"a": attempt("a", "max_turns_exceeded", {}, "KeyError: 'k'")}, {"a": {"g": 1}})
    assert result == {"a": RolloutOutcome({"g": 1}, "max_turns_exceeded", "KeyError: 'k'")}


@pytest.mark.parametrize("rewards", [{"g": float("nan")}, {"g": True}, {"": 1.0}])
async def test_a_group_reward_that_breaks_the_map_rules_raises_out_of_run_group(rewards: Any) -> None:
    with pytest.raises(ValueError, match="rewards"):
        await outcomes({"a": attempt("a", rewards={"x": 1})}, {"a": rewards})


@pytest.mark.parametrize("reason", SCORABLE)
def test_a_failure_replaces_only_finished(reason: str) -> None:
    expected = "judge_error" if reason == "finished" else reason
    assert settle_termination_reason(reason, "judge_error") == expected


REASONS = st.sampled_from([*SCORABLE, "tool_error", "content_filter"])
ENDS = st.one_of(
    st.tuples(st.just("attempt"), REASONS, st.sampled_from([None, {}, {"x": 0}, {"x": 1.5}])),
    st.tuples(st.just("failure"), REASONS.filter(lambda reason: reason != "finished"), st.none()),
    st.tuples(st.just("defect"), st.just(""), st.none()),
)


@given(st.lists(ENDS, min_size=1, max_size=6), st.booleans())
@settings(deadline=None)
def test_every_group_ends_as_the_rules_say(ends: list[tuple[str, str, Any]], scores_group: bool) -> None:
    results: dict[str, Any] = {}
    for number, (kind, reason, rewards) in enumerate(ends):
        rollout_id = str(number)
        if kind == "attempt":
            results[rollout_id] = attempt(rollout_id, reason, rewards)
        else:
            results[rollout_id] = RolloutFailure(reason, "failed") if kind == "failure" else KeyError(rollout_id)
    group: Any = (lambda rollouts: {r.rollout_id: {"g": 1} for r in rollouts}) if scores_group else None
    environment = Scripted(results, group)

    attempts = [result for result in results.values() if isinstance(result, RolloutAttempt)]
    scorable = [one for one in attempts if one.termination_reason in SCORABLE]
    stray = [one for one in attempts if one.termination_reason not in SCORABLE and any((one.rewards or {}).values())]
    defects = [result for result in results.values() if isinstance(result, KeyError)]

    def run() -> Mapping[str, RolloutOutcome]:
        return asyncio.run(environment.run_group(requests(*results)))

    if stray:
        with pytest.raises(ValueError, match="non-zero rewards"):
            run()
    elif defects:
        with pytest.raises(KeyError) as caught:
            run()
        assert caught.value is defects[0]
    else:
        result = run()
        assert list(result) == list(results)
        unrewarded = any(
            one.termination_reason == "finished" and not one.rewards and not scores_group for one in scorable
        )
        for rollout_id, outcome in result.items():
            end = results[rollout_id]
            if isinstance(end, RolloutFailure):
                assert outcome == RolloutOutcome({}, end.termination_reason, "failed")
            elif end not in scorable:
                assert outcome == RolloutOutcome(end.rewards or {}, end.termination_reason)
            elif unrewarded:
                assert outcome.rewards == {}
                assert outcome.termination_reason == settle_termination_reason(
                    end.termination_reason, "group_reward_error"
                )
            else:
                expected = {**(end.rewards or {}), **({"g": 1} if scores_group else {})}
                assert outcome == RolloutOutcome(expected, end.termination_reason)
