"""Tool calls that a model got wrong: each is answered by one tool message of its own id, and the rollout goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import RecordEvent, RolloutRecord, isolate
from runner.provision import Cache
from tests.contract.loopback import ModelServer, Received, Reply, call, completion, running_server
from tests.hostile.environments import calculating
from tests.integration.isolation import bundled, requests_for

pytestmark = pytest.mark.integration

GOOD = '{"a": 1, "b": 2}'
NO_JSON, NO_OBJECT = "Invalid JSON tool arguments:", "Tool arguments must be a JSON object."
TURNS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "truncated": ([call("add", '{"a": 1, "b"')], [NO_JSON]),
    "encoded twice": ([call("add", '"{\\"a\\": 1}"')], [NO_OBJECT]),
    "a list": ([call("add", "[]")], [NO_OBJECT]),
    "a number": ([call("add", "3")], [NO_OBJECT]),
    "nothing": ([call("add", "")], ["0"]),
    "an unknown tool": ([call("subtract", GOOD)], ["Unknown tool: subtract"]),
    "an unexpected argument": ([call("add", '{"a": 1, "c": 2}')], ["1"]),
    "the same id twice": ([call("add", GOOD, "same"), call("add", "{", "same")], ["3", NO_JSON]),
    "an empty id": ([call("add", GOOD, "")], ["3"]),
    "deeply nested": ([call("add", '{"a":' + "[" * 50_000)], [NO_JSON]),
    "one bad one among three good ones": (
        [call("add", GOOD, "1"), call("add", '{"a": 4}', "2"), call("add", "{a: 1}", "3"), call("add", GOOD, "4")],
        ["3", "4", NO_JSON, "3"],
    ),
}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A model called like one of the turns takes that turn, and then says that it is done."""

    def answer(received: Received) -> Reply:
        messages = received.body["messages"]
        if len(messages) > 1:
            return completion("done")
        return completion(None, finish="tool_calls", calls=TURNS[received.body["model"]][0])

    with running_server() as server:
        server.answer = answer
        yield server


async def test_each_malformed_call_has_one_answer_and_the_rollout_is_scored(
    shared_cache: Path, tmp_path: Path, model: ModelServer
) -> None:
    records: dict[str, RolloutRecord] = {}

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent):
            records[event.record.rollout_id] = event.record

    async with isolate(bundled(calculating, "Calculating"), cache=Cache(shared_cache), on_event=on_event) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        for name, (calls, contents) in TURNS.items():
            requests = requests_for(dataset[0], 1, model=name, base_url=model.url, prefix=name)
            (outcome,) = (await env.run_group(requests)).values()
            assert (outcome.termination_reason, outcome.error) == ("finished", None), name
            assert outcome.rewards == {"answered": len(calls)}, name
            transcript: list[Any] = [*(records[f"{name}-0"].transcript or ())]
            answers = [message for message in transcript if message["role"] == "tool"]
            assert [answer["tool_call_id"] for answer in answers] == [made["id"] for made in calls], name
            for answer, content in zip(answers, contents, strict=True):
                assert answer["content"].startswith(content), name
