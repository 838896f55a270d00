"""examples/guessing, run with the mock model in this process and isolated."""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import Environment, RolloutRequest
from runner import isolate
from runner.models import mock_command
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.contract.loopback import ModelServer, Received, Reply, completion, running_server
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.model_process import running

FOLDER = EXAMPLES / "guessing"
MOCK = mock_command(FOLDER / "mock.json")


@pytest.fixture(scope="module")
def guessing() -> ModuleType:
    return load_example("guessing")


@pytest.fixture
def env(guessing: ModuleType) -> Environment[Any, Any]:
    env: Environment[Any, Any] = guessing.Guessing()
    return env


async def play(env: Environment[Any, Any], server: ModelServer, *, siblings: int = 1) -> Any:
    """Run a group of the first evaluation example."""
    example = (await env.create_dataset("eval", Path()))[0]
    auth = StaticBearerAuth("t")
    return await env.run_group(
        [RolloutRequest(f"r-{k}", example, "m", server.url, auth, "eval") for k in range(siblings)]
    )


def counting_up(server: ModelServer) -> None:
    """Guess 1, 2, 3 and so on: one more with each answer in the conversation."""

    def answer(received: Received) -> Reply:
        return completion(f"Is it {len(received.body['messages']) // 2 - 1}?")

    server.answer = answer


async def test_every_number_is_in_one_split(env: Environment[Any, Any]) -> None:
    train, evaluation = [await env.create_dataset(split, Path()) for split in ("train", "eval")]
    assert (len(train), len(evaluation)) == (12, 4)
    assert sorted(example.payload.number for example in [*train, *evaluation]) == list(range(1, 17))
    assert list(await env.create_dataset("eval", Path(), max_examples=2)) == list(evaluation)[:2]


async def test_a_guess_is_answered_and_the_conversation_goes_on(guessing: ModuleType) -> None:
    env = guessing.Guessing(highest=16, max_guesses=16)
    with running_server() as server:
        counting_up(server)
        (outcome,) = (await play(env, server)).values()
        messages = server.requests[-1].body["messages"]
    secret = (await env.create_dataset("eval", Path()))[0].payload.number
    assert len(server.requests) == secret > 2
    assert [message["content"] for message in messages[5:9]] == [
        "Is it 1?", "1 is too low.", "Is it 2?", "2 is too low.",
    ]  # fmt: skip
    assert outcome.termination_reason == "finished"
    assert outcome.rewards == {"found": 1.0, "economy": min(1.0, 5 / secret), "fastest": 1.0}


async def test_guesses_are_used_up(guessing: ModuleType) -> None:
    with running_server() as server:
        counting_up(server)
        (outcome,) = (await play(guessing.Guessing(max_guesses=2), server)).values()
    assert len(server.requests) == 2
    assert outcome.termination_reason == "guesses_used_up"
    assert outcome.rewards == {"found": 0.0, "economy": 0.0, "fastest": 0.0}


@pytest.mark.parametrize("reply", [Reply(status=500), Reply({"id": "c", "choices": []})])
async def test_a_model_that_gives_no_answer_is_no_bad_guess(env: Environment[Any, Any], reply: Reply) -> None:
    with running_server() as server:
        server.answer = lambda received: reply
        (outcome,) = (await play(env, server)).values()
    assert outcome.termination_reason == "model_error"
    assert outcome.rewards == {}
    assert outcome.error
    assert len(server.requests) == 1


def test_the_guesses_that_always_suffice_cost_nothing(guessing: ModuleType) -> None:
    assert [guessing.economy("finished", guesses, 16) for guesses in (1, 5, 6, 10)] == [1.0, 1.0, 5 / 6, 0.5]
    assert guessing.economy("no_number", 1, 16) == 0.0


async def test_the_mock_halves_what_is_left_and_its_siblings_fail_in_their_own_ways(
    env: Environment[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with running(MOCK, tmp_path / "stderr") as model:
        groups = await run_groups(env, model, FOLDER, split="eval", examples=4, group_size=4)
    assert len(groups) == 4
    for group in groups:
        halving, bad_start, silent, failed = group.values()
        assert halving.termination_reason == bad_start.termination_reason == "finished"
        assert halving.rewards == {"found": 1.0, "economy": 1.0, "fastest": 1.0}
        assert bad_start.rewards["found"] == 1.0
        assert (silent.termination_reason, silent.rewards["fastest"]) == ("no_number", 0.0)
        assert (failed.termination_reason, failed.rewards) == ("model_error", {})
        assert "scripted to fail" in str(failed.error)
    assert any(
        group_outcomes[1].rewards["fastest"] == 0.0 for group_outcomes in map(list, (g.values() for g in groups))
    )


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_it_gives_equal_outcomes_packed_and_isolated(
    env: Environment[Any, Any], shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await pack(PackRequest(target=f"{FOLDER / 'guessing.py'}:Guessing"), tmp_path / "artifact", cache=cache)
    with running(MOCK, tmp_path / "stderr") as model:
        here = await run_groups(env, model, FOLDER, split="eval", examples=4, group_size=4)
        async with isolate(artifact, cache=cache) as isolated:
            there = await run_groups(isolated, model, FOLDER, split="eval", examples=4, group_size=4)
            assert isolated.scorable_termination_reasons == {"finished", "guesses_used_up", "no_number"}
    assert there == here
