"""Runs several bundles at the same time under this one process: `run.py ARTIFACT...`."""

import asyncio
import re
import sys
from pathlib import Path

from benchmax.envs import RolloutRequest
from runner import RecordEvent, isolate
from runner.limits import Limits
from runner.models import SampleAuth, parse_model
from runner.models.server import serving
from runner.provision import Cache


async def rollouts(artifact: str, base_url: str) -> str:
    """Run one example of a bundle; say what its venv holds, and what its own code saw there."""
    seen: list[str] = []

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent) and event.record.transcript:
            seen.extend(re.findall(r"tabulate [\d.]+\d", str(event.record.transcript[0])))

    async with isolate(artifact, on_event=on_event) as env:
        dataset = await env.create_dataset("eval", Path(), max_examples=1)
        requests = [RolloutRequest(f"r-{k}", dataset[0], "mock", base_url, SampleAuth(), "eval") for k in range(2)]
        outcomes = await env.run_group(requests)
        reasons = sorted({outcome.termination_reason for outcome in outcomes.values()})
        return f"{artifact}: venv has tabulate {env.venv.packages['tabulate']}, its code saw {seen[0]}, ended {reasons}"


async def main(artifacts: list[str]) -> None:
    """Run all of them at once."""
    model = parse_model("mock", base_url=None)
    async with serving(model, cache=Cache(), limits=Limits()) as server:
        for line in await asyncio.gather(*(rollouts(artifact, server.base_url) for artifact in artifacts)):
            print(line)  # noqa: T201 - what the example is for


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
