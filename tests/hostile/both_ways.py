"""A program: one hundred large groups at once in one worker, on the event loop that its first argument names."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest
from runner import RecordEvent, isolate
from runner.provision import Cache

GROUPS, SIZE = 100, 4


async def exchange(cache: str, artifact: str, folder: str) -> None:
    """Large requests go out while large outcomes come in, and every rollout asks for headers three times meanwhile."""
    transcripts: list[int] = []

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent):
            transcripts.append(len(event.record.transcript or []))

    async with isolate(artifact, cache=Cache(Path(cache)), on_event=on_event) as env:
        examples = {example.id: example for example in await env.create_dataset("eval", Path(folder))}
        auth = StaticBearerAuth("t" * 4000)
        url = "http://model.example/" + "u" * 8000
        groups = await asyncio.gather(
            *(
                env.run_group(
                    [
                        RolloutRequest(
                            f"{number}-{k}-".ljust(4000, "r"), examples["large"], "m" * 4000, url, auth, "eval"
                        )
                        for k in range(SIZE)
                    ]
                )
                for number in range(GROUPS)
            )
        )
        assert [len(group) for group in groups] == [SIZE] * GROUPS
        for group in groups:
            for outcome in group.values():
                assert outcome.termination_reason == "finished", outcome
                assert str(outcome.error).startswith("['Authorization']")
                assert len(outcome.rewards) == 1000
        assert transcripts == [1] * SIZE * GROUPS
        assert [(count.verdict, count.count) for count in env.audit_counts] == [("answered", 3 * SIZE * GROUPS)]
    print(type(asyncio.get_running_loop()).__module__)


if sys.argv[1] == "uvloop":
    import uvloop

    uvloop.run(exchange(*sys.argv[2:]))
else:
    asyncio.run(exchange(*sys.argv[2:]))
