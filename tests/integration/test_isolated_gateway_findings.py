"""What the gateway saw of a rollout is in its record: calls, tokens, findings, and a transcript that nobody gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import RecordEvent
from runner.provision import Cache
from runner.record import RolloutRecord
from tests.contract.loopback import completion, running_server
from tests.integration.environments import insisting
from tests.integration.isolation import bundled, requests_for, unconfined

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("credentials", ["gateway", "headers"])
async def test_a_record_has_what_passed_the_gateway_and_nothing_without_it(
    credentials: str, shared_cache: Path, tmp_path: Path
) -> None:
    records: dict[str, RolloutRecord] = {}

    def keep(event: object) -> None:
        if isinstance(event, RecordEvent):
            records[event.record.rollout_id] = event.record

    bundle = bundled(insisting, "Insisting")
    with running_server() as server:
        server.answer = lambda received: completion("forty-two")
        async with unconfined(bundle, credentials=credentials, cache=Cache(shared_cache), on_event=keep) as env:
            dataset = await env.create_dataset("eval", tmp_path)
            for example in dataset:
                await env.run_group(requests_for(example, base_url=server.url, prefix=example.id))
    none, once, twice = (records[f"{times}-0"] for times in range(3))
    if credentials == "headers":
        assert (once.num_calls, once.usage, once.calls, once.transcript, twice.diagnostics) == (0, None, (), None, ())
        return
    assert (once.num_calls, twice.num_calls, none.num_calls) == (1, 2, 0)
    assert once.usage is not None
    assert once.usage.estimated
    assert once.diagnostics == ()
    assert once.transcript == [insisting.QUESTION, {"role": "assistant", "content": "forty-two"}]
    assert none.transcript is None
    (found,) = twice.diagnostics
    assert (found.code, found.field, found.call) == ("rewritten_history", "messages[1]", 1)
