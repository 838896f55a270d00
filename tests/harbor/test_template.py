"""What trials have in common, and what is diagnosed of a harness's options. Types of Harbor are checked elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.harbor import HarborTrialTemplate
from benchmax.envs.harbor.model_controls import diagnose_controls

PARTS: Any = {"agent": "agent", "environment": "environment", "verifier": "verifier"}

FIELDS = [
    "agent",
    "environment",
    "verifier",
    "trials_dir",
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
    "artifacts",
    "extra_instruction_paths",
]


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        HarborTrialTemplate(**{**PARTS, name: None})


@pytest.mark.parametrize("name", [name for name in FIELDS if name.endswith("multiplier")])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_multiplier_is_above_zero(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        HarborTrialTemplate(**{**PARTS, name: value})


def test_paths_are_expanded_and_sequences_are_fixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"trials_dir": "~/trials", "artifacts": ["a"], "extra_instruction_paths": ["~/more.md", "other.md"]}
    made = HarborTrialTemplate(**{**PARTS, **given})
    assert made.trials_dir == tmp_path / "trials"
    assert made.artifacts == ("a",)
    assert made.extra_instruction_paths == (tmp_path / "more.md", Path("other.md"))
    assert HarborTrialTemplate(**{**PARTS, "trials_dir": ""}).trials_dir == Path()
    assert HarborTrialTemplate(**PARTS).trials_dir == Path("trials")


def test_the_state_in_a_pickle_is_the_list_of_fields() -> None:
    made: Any = HarborTrialTemplate(**PARTS)
    assert list(HarborTrialTemplate.__dataclass_fields__) == FIELDS
    assert made.__getstate__() == [*PARTS.values(), Path("trials"), 1.0, None, None, None, None, (), ()]


def test_it_is_shown_without_what_may_be_secret() -> None:
    shown = repr(HarborTrialTemplate(**{**PARTS, "agent": "sesame"}, artifacts=("sesame",)))
    assert shown == "HarborTrialTemplate(trials_dir='trials', timeout_multiplier=1.0, artifacts=1)"


# -- options of the model -------------------------------------------------------------------------------------

CAPS = ["max_tokens", "max_completion_tokens"]
OF_THE_TRAINER = ["temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "stop"]
UNSUPPORTED = [
    "best_of",
    "do_sample",
    "function_call",
    "functions",
    "grammar",
    "max_new_tokens",
    "min_p",
    "min_tokens",
    "num_beams",
    "prediction",
    "reasoning_effort",
    "repetition_penalty",
    "typical_p",
    "verbosity",
    "web_search_options",
    "top_logprobs",
]
HARMLESS: dict[str, list[Any]] = {
    **{name: [None] for name in UNSUPPORTED},
    "n": [None, 1],
    "tool_choice": [None, "auto"],
    "logprobs": [None, False],
    "parallel_tool_calls": [None, True],
    "response_format": [None, {}, {"type": "text"}],
    "logit_bias": [None, {}],
}


@pytest.mark.parametrize("value", [None, 1, "x"])
def test_some_options_are_named_whatever_their_value(value: Any) -> None:
    for names, severity, code in (
        (CAPS, "warning", "harness_output_cap"),
        (OF_THE_TRAINER, "error", "trainer_owned_model_control"),
        (["return_routed_experts"], "error", "unsupported_model_control"),
    ):
        for name in names:
            [found] = diagnose_controls({name: value})
            assert (found.severity, found.code, found.location) == (severity, code, f"agent.kwargs.{name}")
            assert f"agent.kwargs.{name}" in found.message


@pytest.mark.parametrize("name", HARMLESS)
def test_other_options_are_named_unless_they_change_nothing(name: str) -> None:
    for value in HARMLESS[name]:
        assert diagnose_controls({name: value}) == ()
    [found] = diagnose_controls({name: "unusual"})
    assert (found.severity, found.code) == ("error", "unsupported_model_control")
    assert "'unusual'" in found.message
    assert diagnose_controls({name: 0 if name != "logprobs" else 1})


def test_nested_mappings_are_walked_in_order_and_lists_are_not() -> None:
    found = diagnose_controls(
        {"b": {"seed": 1, "deep": {"n": 2}}, "seed": None, "list": [{"seed": 1}], "n": {"seed": 0}, "plain": 1}
    )
    assert [one.location for one in found] == [
        "agent.kwargs.b.seed",
        "agent.kwargs.b.deep.n",
        "agent.kwargs.seed",
        "agent.kwargs.n",
        "agent.kwargs.n.seed",
    ]
    assert diagnose_controls({}) == ()
