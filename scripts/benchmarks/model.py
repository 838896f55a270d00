"""One-turn rollouts of the stock environment against a loopback server.

Beside it, in the same run: the published release in a venv of its own, and a bare loop of SDK calls on one client.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from runner.packing import metadata_for
from runner.provision import Cache, provision, provision_packages
from scripts.benchmarks.table import Row

ROUNDS = 5
SERIES = "3.12"
"""The only one the published release supports."""

PUBLISHED = ["benchmax==0.2.5", "openai<3"]
"""The newest one that imports beside it; ours is measured with the same major."""

DRIVER = """
import asyncio, sys, time
from benchmax.envs import BaseEnv, Dataset, Example, RolloutRequest, StaticBearerAuth

class OneTurn(BaseEnv):
    max_turns = 1
    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([])
    async def compute_reward(self, rollout):
        return {"x": 1.0}

async def rollouts(url, count, size):
    env, example = OneTurn(), Example("e", {"prompt_messages": [{"role": "user", "content": "q"}]})
    auth = StaticBearerAuth("t")
    async def group(number):
        requests = [RolloutRequest(f"{number}-{k}", example, "m", url, auth, "eval") for k in range(size)]
        outcomes = await env.run_group(requests)
        assert all(o.termination_reason == "finished" for o in outcomes.values()), outcomes
    await group("warm")
    began = time.perf_counter()
    for number in range(count // size):
        await group(number)
    return count / (time.perf_counter() - began)

async def bare(url, count, size):
    from openai import AsyncOpenAI
    async with AsyncOpenAI(base_url=url, api_key="t", max_retries=0) as client:
        async def one():
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
        await asyncio.gather(*(one() for _ in range(size)))
        began = time.perf_counter()
        for _ in range(count // size):
            await asyncio.gather(*(one() for _ in range(size)))
        return count / (time.perf_counter() - began)

what, url, count, size = sys.argv[1:]
print(asyncio.run({"rollouts": rollouts, "bare": bare}[what](url, int(count), int(size))))
"""


async def measure() -> list[Row]:
    """Measure and return rows."""
    cache = Cache()
    ours = await provision(metadata_for(["openai<3"], SERIES), cache=cache)
    published = await provision_packages(PUBLISHED, python_series=SERIES, cache=cache)
    command = [sys.executable, "-m", "scripts.benchmarks.loopback"]
    rows = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: ASYNC220
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        for size, count, published_count in ((1, 400, 80), (8, 800, 80), (64, 1280, 128)):
            rates: dict[str, list[float]] = {"ours": [], "published": [], "bare": []}
            for _ in range(ROUNDS):
                rates["published"].append(_drive(published.python, "rollouts", url, published_count, size))
                rates["ours"].append(_drive(ours.python, "rollouts", url, count, size))
                rates["bare"].append(_drive(ours.python, "bare", url, count, size))
            mine, theirs, loop = (statistics.median(rates[name]) for name in ("ours", "published", "bare"))
            what = f"one-turn rollouts/s, groups of {size}"
            rows += [
                Row(
                    what,
                    f"{mine:,.0f}",
                    f"{theirs:,.0f} (published release)",
                    mine / theirs,
                    "≥ 12",
                    mine >= 12 * theirs,
                ),
                Row(
                    what,
                    f"{mine:,.0f}",
                    f"{loop:,.0f} (bare loop, one client)",
                    mine / loop,
                    "≥ 0.8",
                    mine >= 0.8 * loop,
                ),
            ]
        server.communicate()
    return rows


def _drive(python: Path, what: str, url: str, count: int, size: int) -> float:
    command = [str(python), "-P", "-c", DRIVER, what, url, str(count), str(size)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
