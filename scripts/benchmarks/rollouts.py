"""No-op rollouts per second: isolated, beside the same in process and in a process pool of one worker."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import dump_bundle, load_bundle
from benchmax.envs import Environment, RolloutRequest
from runner import isolate
from runner.provision import Cache
from scripts.benchmarks import pool, subject
from scripts.benchmarks.table import Row

ROUNDS = 5
GROUP = 8
POOLS = ("spawn", "forkserver")


async def measure() -> list[Row]:
    """Measure and return rows."""
    bundle = dump_bundle(subject.NoOp, local_modules=[subject])
    here = load_bundle(bundle)
    rows = []
    async with isolate(bundle, cache=Cache()) as env:
        for depth, groups, goal in ((1, 300, 0.5), (125, 2500, 0.85)):
            rates: dict[str, list[float]] = {"ours": [], "in process": [], **{method: [] for method in POOLS}}
            for _ in range(ROUNDS):
                rates["in process"].append(await _rate(here, depth, groups))
                rates["ours"].append(await _rate(env, depth, groups))
                for method in POOLS:
                    with pool.pool(method) as executor:
                        rates[method].append(await pool.rate(executor, depth, groups, GROUP))
            medians = {name: statistics.median(found) for name, found in rates.items()}
            mine, theirs = medians["ours"], medians["in process"]
            best = max(POOLS, key=lambda method: medians[method])
            what = f"no-op rollouts/s, groups of {GROUP}, {depth} in flight"
            rows.append(
                Row(
                    what,
                    f"{mine:,.0f}",
                    f"{theirs:,.0f} (in process)",
                    mine / theirs,
                    f"≥ {goal}",
                    mine >= goal * theirs,
                )
            )
            rows.append(
                Row(
                    what,
                    f"{mine:,.0f}",
                    f"{medians[best]:,.0f} (best process pool, {best})",
                    mine / medians[best],
                    "≥ 1.3",
                    mine >= 1.3 * medians[best],
                )
            )
    return rows


async def _rate(env: Environment[Any, Any], depth: int, groups: int) -> float:
    dataset = await env.create_dataset("eval", Path())
    auth = StaticBearerAuth("unused")
    work = iter(range(groups))

    async def lane() -> None:
        for number in work:
            requests = [
                RolloutRequest(f"{number}-{k}", dataset[0], "m", "http://127.0.0.1:9/v1", auth) for k in range(GROUP)
            ]
            await env.run_group(requests)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(depth)))
    return groups * GROUP / (time.perf_counter() - began)
