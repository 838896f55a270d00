"""What a trial's result means: reasons, rewards, and what the reward kit adds to them."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs import RolloutAttempt
from benchmax.envs.harbor.results import attempt_of_failure, attempt_of_result
from benchmax.envs.harbor.reward_kit import partial_credit

LOGGER = "benchmax.envs.harbor.env"
TIMEOUT = SimpleNamespace(exception_type="AgentTimeoutError", exception_message="too long")
NO_REWARDS = "The verifier returned no rewards; it has to write a reward file in every case."


def result(
    rewards: dict[str, Any] | None = None, *, exception: Any = None, metadata: Any = None, agent: bool = True
) -> Any:
    """A result of a trial, with the parts that matter."""
    found = SimpleNamespace(exception_info=exception, verifier_result=SimpleNamespace(rewards=rewards))
    if agent:
        found.agent_result = SimpleNamespace(metadata=metadata)
    return found


def attempt(rewards: dict[str, Any] | None = None, **parts: Any) -> RolloutAttempt:
    return attempt_of_result("r-0", result(rewards, **parts), Path("no-such-folder"))


# -- reasons --------------------------------------------------------------------------------------------------

BUDGETS = ["context_exceeded", "output_exceeded", "max_turns_exceeded", "tool_budget_exceeded"]


@pytest.mark.parametrize("reason", BUDGETS)
@pytest.mark.parametrize("legacy", [False, True])
def test_a_budget_that_the_harness_reports_is_believed(reason: str, legacy: bool) -> None:
    report = {"termination_reason": reason}
    metadata = {"harvey_metrics": report} if legacy else report
    assert attempt({"reward": 1}, metadata=metadata).termination_reason == reason
    assert attempt(exception=TIMEOUT, metadata=metadata).termination_reason == reason


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        [],
        "text",
        {"termination_reason": None},
        {"termination_reason": "finished"},
        {"termination_reason": "finished", "harvey_metrics": {"termination_reason": "context_exceeded"}},
        {"harvey_metrics": {"termination_reason": "finished"}},
        {"harvey_metrics": "text"},
    ],
)
def test_without_a_report_the_exception_decides(metadata: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert attempt({"reward": 1}, metadata=metadata).termination_reason == "finished"
    caplog.clear()
    assert attempt(exception=TIMEOUT, metadata=metadata).termination_reason == "harness_timeout"
    assert "unrecognized" not in caplog.text


@pytest.mark.parametrize("reported", ["harness_error", "", "Finished", 3, ["context_exceeded"], {}])
def test_any_other_report_is_ignored_and_told(reported: Any, caplog: pytest.LogCaptureFixture) -> None:
    metadata = {"termination_reason": reported, "harvey_metrics": {"termination_reason": "context_exceeded"}}
    assert attempt({"reward": 1}, metadata=metadata).termination_reason == "finished"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name == LOGGER
    assert record.getMessage().startswith("harbor.rollout.unrecognized_harness_termination_reason reason=")


REASONS = {
    "AgentTimeoutError": "harness_timeout",
    "ContextLengthExceededError": "context_exceeded",
    "ContextWindowExceededError": "context_exceeded",
    "OutputLengthExceededError": "output_exceeded",
    "NonZeroAgentExitCodeError": "harness_error",
    "SandboxBuildFailedError": "sandbox_error",
    "VerifierTimeoutError": "verifier_timeout",
    "AgentSetupTimeoutError": "harness_error",
    "SomethingElse": "harness_error",
}


@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_an_exception_is_judged_by_its_name(name: str, reason: str) -> None:
    recorded = attempt(exception=SimpleNamespace(exception_type=name, exception_message="text"))
    raised = attempt_of_failure("r-0", type(name, (Exception,), {})("text"))
    assert recorded == raised
    assert raised == RolloutAttempt(rollout_id="r-0", termination_reason=reason, rewards={}, error=f"{name}: text")


# -- rewards --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewards", [None, {}])
def test_without_rewards_and_exception_it_is_the_verifiers_fault(
    rewards: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = attempt(rewards)
    assert (found.rewards, found.termination_reason, found.error) == ({}, "verifier_error", NO_REWARDS)
    assert "verifier returned no rewards" in NO_REWARDS
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"harbor.rollout.zero_reward rollout_id=r-0 error={NO_REWARDS}"


def test_a_result_without_a_verifiers_is_one_without_rewards() -> None:
    found = result()
    found.verifier_result = None
    assert attempt_of_result("r-0", found, Path("no-such-folder")).termination_reason == "verifier_error"


def test_a_reported_budget_without_rewards_keeps_its_reason() -> None:
    found = attempt(metadata={"termination_reason": "max_turns_exceeded"})
    assert (found.rewards, found.termination_reason, found.error) == ({}, "max_turns_exceeded", NO_REWARDS)


def test_rewards_beside_an_exception_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    found = attempt({"reward": 1}, exception=TIMEOUT, metadata={"termination_reason": "context_exceeded"})
    assert found == RolloutAttempt(
        rollout_id="r-0", termination_reason="context_exceeded", rewards={}, error="AgentTimeoutError: too long"
    )
    assert "harbor.rollout.zero_reward rollout_id=r-0 error=AgentTimeoutError: too long" in caplog.text


def test_the_agents_part_may_be_missing() -> None:
    assert attempt({"reward": 1}, agent=False) == RolloutAttempt(
        rollout_id="r-0", termination_reason="finished", rewards={"reward": 1.0}
    )


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("much", ValueError),
        (None, TypeError),
        ([1], TypeError),
        (10**400, OverflowError),
    ],
)
def test_a_reward_that_is_no_finite_number_is_raised(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        attempt({"reward": value})


# -- reward kit -----------------------------------------------------------------------------------------------


@dataclass
class Kit:
    """A trial's folder in which a verifier leaves details."""

    folder: Path

    def leave(self, details: object) -> None:
        text = details if isinstance(details, str) else json.dumps(details)
        (self.folder / "verifier").mkdir(parents=True, exist_ok=True)
        (self.folder / "verifier" / "reward-details.json").write_text(text)

    def rewards(self, rewards: dict[str, Any]) -> Any:
        return attempt_of_result("r-0", result(rewards), self.folder).rewards


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "trial")


HALF = [{"name": "a", "value": 1}, {"name": "b", "value": 0}]


@pytest.mark.parametrize("details", [{"criteria": HALF}, {"reward": {"criteria": HALF}, "criteria": []}])
def test_partial_credit_is_added_to_a_reward(kit: Kit, details: object) -> None:
    kit.leave(details)
    assert kit.rewards({"reward": 0}) == {"reward": 0.0, "partial_credit": 0.5}
    assert kit.rewards({"reward": 0, "partial_credit": 0.1}) == {"reward": 0.0, "partial_credit": 0.1}
    assert kit.rewards({"other": 0}) == {"other": 0.0}


@pytest.mark.parametrize(
    "details",
    [
        {},
        [],
        "3",
        {"criteria": []},
        {"criteria": {"a": 1}},
        {"criteria": [1]},
        {"reward": {}, "criteria": HALF},
        {"reward": 1, "criteria": HALF},
        {"criteria": [{"value": True}]},
        {"criteria": [{"value": "1"}]},
        {"criteria": [{"value": None}]},
        '{"criteria": [{"value": NaN}]}',
        '{"criteria": [{"value": 1, "weight": Infinity}]}',
        {"criteria": [{"value": 1, "weight": -1}]},
        {"criteria": [{"value": 1, "weight": True}]},
        {"criteria": [{"value": 1, "weight": 0}]},
        {"criteria": [{"value": 10**400}]},
        {"criteria": [{"value": 1e308, "weight": 1e308}, {"value": 1e308, "weight": 1e308}]},
    ],
)
def test_details_that_cannot_be_reckoned_with_add_nothing(
    kit: Kit, details: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    kit.leave(details)
    assert kit.rewards({"reward": 0}) == {"reward": 0.0}
    assert caplog.records == []


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, '"\udcff"'])
def test_details_that_are_no_json_are_told(kit: Kit, text: str, caplog: pytest.LogCaptureFixture) -> None:
    kit.leave("x")
    path = kit.folder / "verifier" / "reward-details.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert kit.rewards({"reward": 0}) == {"reward": 0.0}
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"harbor.rewardkit.invalid_details path={path}"


def logged(caplog: pytest.LogCaptureFixture, event: str) -> str:
    [message] = [one.getMessage() for one in caplog.records if one.getMessage().startswith(event)]
    return message


def test_how_criteria_were_met_is_logged(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    criteria: list[dict[str, Any]] = [
        {"name": "späte  Antwort", "value": 0.5, "weight": 2, "description": "d\n e", "reasoning": 3},
        {"name": "a", "value": 1},
        {"name": "a", "value": -1},
        {"value": 2},
    ]
    kit.leave({"criteria": criteria})
    kit.rewards({"reward": 0})
    assert logged(caplog, "harbor.rewardkit.criteria") == (
        "harbor.rewardkit.criteria rollout_id=r-0 total=4 passed=2 partial=1 failed=1 weighted_score=0.600000 "
        'values={"a":1.0,"a#2":-1.0,"criterion-4":2.0,"späte Antwort":0.5}'
    )
    message = logged(caplog, "harbor.rewardkit.misses")
    assert message.startswith("harbor.rewardkit.misses rollout_id=r-0 shown=2 omitted=0 details=")
    assert json.loads(message.partition("details=")[2]) == [
        {"name": "a#2", "value": -1, "weight": 1, "impact": 2, "description": "", "reasoning": ""},
        {"name": "späte Antwort", "value": 0.5, "weight": 2, "impact": 1, "description": "d e", "reasoning": ""},
    ]


def test_at_most_eight_misses_are_shown_and_long_texts_are_cut(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    one = {"name": "n" * 81, "value": 0, "description": "d" * 181, "reasoning": "r" * 361}
    kit.leave({"criteria": [one] * 11})
    kit.rewards({"reward": 0})
    message = logged(caplog, "harbor.rewardkit.misses")
    assert "shown=8 omitted=3" in message
    shown = json.loads(message.partition("details=")[2])
    assert {len(miss["name"]) for miss in shown} == {80}
    names = {miss["name"] for miss in shown}
    assert len(names) == 8
    assert "n" * 77 + "…#2" in names
    assert f'"{"n" * 76}…#10":' in logged(caplog, "harbor.rewardkit.criteria")
    assert {miss["description"] for miss in shown} == {"d" * 179 + "…"}
    assert {miss["reasoning"] for miss in shown} == {"r" * 359 + "…"}


def test_full_marks_miss_nothing(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    kit.leave({"criteria": [{"value": 1}]})
    assert kit.rewards({"reward": 1}) == {"reward": 1.0, "partial_credit": 1.0}
    assert "misses" not in caplog.text


numbers = st.one_of(st.integers(0, 5), st.floats(0, 5))


@given(st.lists(st.tuples(numbers, numbers, st.sampled_from(["a", "a#2", "b", " ", ""])), min_size=1, max_size=12))
def test_partial_credit_lies_between_the_least_and_the_greatest_value(rows: list[tuple[float, float, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        kit = Kit(Path(name))
        kit.leave({"criteria": [{"value": value, "weight": weight, "name": text} for value, weight, text in rows]})
        credit = partial_credit("r-0", kit.folder)
    weighed = [value for value, weight, _ in rows if weight > 0]
    if not weighed:
        assert credit is None
    else:
        assert credit is None or min(weighed) - 1e-9 <= credit <= max(weighed) + 1e-9
