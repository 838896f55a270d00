"""What the stock environment, the examples and openai's client send by themselves is no finding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from benchmax.auth import StaticBearerAuth, bind_model_auth
from benchmax.envs import Environment, RolloutRequest
from runner.models import SampleAuth
from tests.integration.example_environment import EXAMPLES, load_example
from tests.unit.diagnostics_lab import JudgingServer, judging

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "number"}, "right": {"type": "number"}},
            "required": ["left", "right"],
        },
    },
}
QUESTION: Any = {"role": "user", "content": "What is 6 * 7?"}


@pytest.fixture
def server() -> Iterator[JudgingServer]:
    with judging() as server:
        yield server


@pytest.fixture
def client(server: JudgingServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url("s"), api_key="k", max_retries=0) as client:
        yield client


def kinds(server: JudgingServer) -> set[str]:
    return {finding.code for contract in server.contracts.values() for finding in contract.findings}


async def rollouts(env: Environment[Any, Any], server: JudgingServer, data: Path, siblings: int) -> set[str]:
    """Run a group for each of three examples; return how they ended."""
    reasons = set()
    with bind_model_auth({"judge": StaticBearerAuth("k")}):
        for example in await env.create_dataset("eval", data, max_examples=3):
            ids = [f"{example.id[:8]}-{k}" for k in range(siblings)]
            requests = [RolloutRequest(i, example, "mock", server.url(i), SampleAuth(), "eval") for i in ids]
            reasons |= {outcome.termination_reason for outcome in (await env.run_group(requests)).values()}
    await env.aclose()
    return reasons


@pytest.mark.parametrize(
    ("example", "reasons"),
    [
        ("calculator", {"finished", "model_error", "max_turns_exceeded"}),
        ("guessing", {"finished", "no_number"}),
        ("maze", {"finished"}),
    ],
)
async def test_the_examples_send_nothing_that_training_could_not_honour(example: str, reasons: set[str]) -> None:
    module = load_example(example)
    env = getattr(module, example.capitalize())()
    with judging(EXAMPLES / example / "mock.json") as server:
        assert reasons <= await rollouts(env, server, EXAMPLES / example, siblings=6)
        assert sum(len(contract.findings) for contract in server.contracts.values()) == 0
        assert len(server.contracts) == 18


async def test_a_judge_is_asked_beside_the_session() -> None:
    module = load_example("judged")
    with judging(EXAMPLES / "judged" / "mock.json") as server:
        env = module.Judged(judge_model="judge", judge_url=server.url("judge"))
        await rollouts(env, server, EXAMPLES / "judged", siblings=2)
        judge = server.contracts.pop("judge")
        assert len(server.contracts) == 6
        assert kinds(server) == set()
        # it sets a temperature, which is nobody's business; a session of its own would find it
        assert "trainer_owned_model_control" in {finding.code for finding in judge.findings}


def test_a_conversation_with_tools_by_the_client_s_own_objects(server: JudgingServer, client: OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Use the tool."}, QUESTION]
    for _ in range(3):
        message = client.chat.completions.create(model="m", messages=messages, tools=[TOOL]).choices[0].message
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": c.id, "content": "42"} for c in message.tool_calls or ()]
    messages.append({"role": "user", "content": "Thanks. What is 6 * 8?"})
    client.chat.completions.create(model="m", messages=messages, tools=[TOOL], user="u", metadata={"a": "b"}, n=1)
    assert kinds(server) == set()
    assert server.contracts["s"].errors == []


async def test_a_streamed_conversation(server: JudgingServer) -> None:
    messages: list[Any] = [QUESTION]
    async with AsyncOpenAI(base_url=server.url("s"), api_key="k", max_retries=0) as client:
        for _ in range(2):
            stream = client.chat.completions.stream(
                model="m", messages=messages, tools=[TOOL], stream_options={"include_usage": True}
            )
            async with stream as events:
                message = (await events.get_final_completion()).choices[0].message
            # with what its own helper adds, such as the parsed arguments
            messages.append(message.model_dump(exclude={"parsed"}))
            messages += [{"role": "tool", "tool_call_id": c.id, "content": "42"} for c in message.tool_calls or ()]
    assert len(messages) >= 4
    assert kinds(server) == set()


def test_a_form_of_the_answer_is_found(server: JudgingServer, client: OpenAI) -> None:
    class Product(BaseModel):
        value: int

    client.chat.completions.parse(model="m", messages=[QUESTION], response_format=Product)
    assert kinds(server) == {"unsupported_model_control"}


def test_asking_again_instead_of_going_on_is_found(server: JudgingServer, client: OpenAI) -> None:
    for _ in range(2):
        client.chat.completions.create(model="m", messages=[QUESTION])
    assert kinds(server) == {"rewritten_history"}
