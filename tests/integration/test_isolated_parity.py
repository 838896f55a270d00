"""The same requests through `load_bundle` and through `isolate` give equal outcomes, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmax.bundle import load_bundle
from benchmax.envs import Environment
from runner import IsolatedEnvironment, RemoteError, isolate
from runner.provision import Cache
from tests.integration.environments import probing, scripted
from tests.integration.isolation import bundled, requests_for

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SCORABLE = ["finished", "context_exceeded", "output_exceeded", "max_turns_exceeded", "tool_budget_exceeded"]
REASONS = [
    *SCORABLE, "harness_timeout", "harness_error", "sandbox_error", "verifier_timeout", "verifier_error", "model_error",
    "tool_error", "judge_error", "reward_error", "group_reward_error", "unknown", "content_filter", "é \u202e",
]  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda value: value.strip() != ""
)
number = st.one_of(
    st.integers(), st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False), st.just(-0.0)
)
rewards = st.dictionaries(text, number, max_size=4)
scored = st.fixed_dictionaries(
    {
        "do": st.just("attempt"),
        "reason": st.sampled_from(SCORABLE),
        "rewards": st.none() | rewards,
        "error": st.none() | text,
    }
)
unscored = st.fixed_dictionaries(
    {
        "do": st.just("attempt"),
        "reason": st.sampled_from(REASONS),
        "rewards": st.sampled_from([None, {}, {"zero": 0}]),
        "error": st.none() | text,
    }
)
failure = st.fixed_dictionaries(
    {
        "do": st.just("fail"),
        "reason": st.sampled_from([reason for reason in REASONS if reason != "finished"]),
        "message": text,
    }
)
defect = st.one_of(
    st.fixed_dictionaries({"do": st.just("raise"), "type": st.sampled_from(sorted(scripted.ERRORS)), "message": text}),
    st.sampled_from([{"do": "wrong id"}, {"do": "nothing"}]),
)
rollout = st.one_of(scored, scored, unscored, failure, defect)
group = st.one_of(
    st.sampled_from([{"do": do} for do in ("none", "rank", "rank", "same key", "forget one", "nan")]), failure, defect
).filter(lambda step: step["do"] not in ("wrong id", "nothing"))
example = st.fixed_dictionaries({"rollouts": st.lists(rollout, min_size=1, max_size=4), "group": group})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(shared_cache: Path) -> AsyncIterator[IsolatedEnvironment]:
    async with isolate(bundled(scripted, "Scripted"), cache=Cache(shared_cache)) as isolated:
        yield isolated


async def outcome_of(env: Environment[Any, Any], folder: Path) -> Any:
    """What a group gives, or what it raises."""
    dataset = await env.create_dataset("eval", folder)
    found: list[Any] = []
    for item in dataset:
        count = len(json.loads((folder / "script.json").read_text())["examples"][0]["rollouts"])
        try:
            found.append(dict(await env.run_group(requests_for(item, count))))
        except RemoteError as error:
            found.append((error.remote_type, error.remote_message))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return [example.id for example in dataset], found


async def test_generated_environments_give_equal_outcomes_in_process_and_isolated(
    env: IsolatedEnvironment, tmp_path: Path
) -> None:
    here = load_bundle(bundled(scripted, "Scripted"))
    loop = asyncio.get_running_loop()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(example)
    def compare(row: dict[str, Any]) -> None:
        (tmp_path / "script.json").write_text(json.dumps({"examples": [{"id": "only", **row}]}))
        ours = asyncio.run_coroutine_threadsafe(outcome_of(env, tmp_path), loop).result(30)
        theirs = asyncio.run_coroutine_threadsafe(outcome_of(here, tmp_path), loop).result(30)
        assert ours == theirs

    # hypothesis is synchronous, so it runs beside the loop that owns the environment
    await asyncio.to_thread(compare)


@pytest.mark.parametrize("reason", REASONS)
async def test_every_termination_reason_crosses_as_it_is(env: IsolatedEnvironment, tmp_path: Path, reason: str) -> None:
    steps = [{"do": "attempt", "reason": reason, "rewards": {}, "error": "why"}] * 2
    row = {"id": "only", "rollouts": steps, "group": {"do": "rank"}}
    (tmp_path / "script.json").write_text(json.dumps({"examples": [row]}))
    assert await outcome_of(env, tmp_path) == await outcome_of(load_bundle(bundled(scripted, "Scripted")), tmp_path)


async def test_integers_of_any_size_and_subnormal_numbers_stay_what_they_are(
    shared_cache: Path, tmp_path: Path
) -> None:
    async with isolate(bundled(probing, "Probing"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        item = next(item for item in dataset if item.id == "odd-rewards")
        (outcome,) = (await env.run_group(requests_for(item))).values()
    assert outcome.rewards == {"int": 3, "huge": 10**30, "negative": -0.25, "tiny": 5e-324, "é": 1.0}
    assert type(outcome.rewards["int"]) is int


async def test_a_group_that_is_no_group_is_refused_before_anything_is_sent(
    env: IsolatedEnvironment, tmp_path: Path
) -> None:
    row = {"rollouts": [{"do": "attempt", "reason": "finished", "rewards": {"x": 1}, "error": None}] * 2}
    rows = [{"id": name, "group": {"do": "none"}, **row} for name in ("a", "b")]
    (tmp_path / "script.json").write_text(json.dumps({"examples": rows}))
    dataset = await env.create_dataset("eval", tmp_path)
    with pytest.raises(ValueError, match="at least one"):
        await env.run_group([])
    twice = requests_for(dataset[0], 1) * 2
    with pytest.raises(ValueError, match="duplicate rollout IDs"):
        await env.run_group(twice)
    with pytest.raises(ValueError, match="one example"):
        await env.run_group(requests_for(dataset[0], 1) + requests_for(dataset[1], 1, prefix="s"))


async def test_an_example_from_elsewhere_is_refused(env: IsolatedEnvironment, tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(
        json.dumps({"examples": [{"id": "only", "rollouts": [], "group": {"do": "none"}}]})
    )
    local = await load_bundle(bundled(scripted, "Scripted")).create_dataset("eval", tmp_path)
    with pytest.raises(ValueError, match="not from this environment's dataset"):
        await env.run_group(requests_for(local[0]))


async def test_run_rollout_returns_the_four_base_fields(env: IsolatedEnvironment, tmp_path: Path) -> None:
    step = {"do": "attempt", "reason": "finished", "rewards": None, "error": "noted"}
    (tmp_path / "script.json").write_text(
        json.dumps({"examples": [{"id": "only", "rollouts": [step], "group": {"do": "none"}}]})
    )
    dataset = await env.create_dataset("eval", tmp_path)
    (request,) = requests_for(dataset[0])
    attempt = await env.run_rollout(request)
    assert (attempt.rollout_id, attempt.termination_reason, attempt.rewards, attempt.error) == (
        "r-0", "finished", None, "noted",
    )  # fmt: skip
