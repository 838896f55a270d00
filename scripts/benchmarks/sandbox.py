"""What each sandbox level costs: at the start of a worker, and for every rollout."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, get_args

from benchmax.bundle import dump_bundle
from runner import isolate
from runner.provision import Cache
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability
from scripts.benchmarks import subject
from scripts.benchmarks.drivers.here import groups_of
from scripts.benchmarks.drivers.load import GROUP, rate
from scripts.benchmarks.table import Row

STARTS: Final = 25
ROUNDS: Final = 15
IN_FLIGHT: Final = 125
GROUPS: Final = 1500
MOST_MS: Final[Mapping[Level, float]] = {"landlock": 5, "namespaces": 6}
"""What a level may add to a start."""

LEAST: Final = 0.97
"""What a level leaves of the throughput."""


async def measure() -> list[Row]:
    """Measure and return rows; a level that does not work here has one that says why."""
    missing = {level: blocker for level in MOST_MS if (blocker := availability(level).blocker) is not None}
    levels = [level for level in get_args(Level) if level not in missing]
    starts, rates = await _starts(levels), await _rates(levels)
    rows = []
    for level, most in MOST_MS.items():
        if level in missing:
            rows.append(Row(f"sandbox {level}", "", missing[level].fact, None, "", None))
            continue
        plain, confined = starts["off"] * 1000, starts[level] * 1000
        rows.append(
            Row(
                f"{level}: cached venv → ready (ms)",
                f"{confined:.1f}",
                f"{plain:.1f} (off)",
                confined / plain,
                f"adds ≤ {most:g} ms, does {confined - plain:.1f}",
                confined - plain <= most,
            )
        )
    rows += [
        Row(
            f"{level}: no-op rollouts/s, groups of {GROUP}, {IN_FLIGHT} in flight",
            f"{rates[level]:,.0f}",
            f"{rates['off']:,.0f} (off)",
            rates[level] / rates["off"],
            f"≥ {LEAST:g}",
            rates[level] >= LEAST * rates["off"],
        )
        for level in levels
        if level != "off"
    ]
    return rows


async def _starts(levels: list[Level]) -> dict[Level, float]:
    """Seconds from a cached venv to a ready worker; levels take turns, so that all meet the same machine."""
    bundle = dump_bundle(subject.NoOp, local_modules=[subject])
    found: dict[Level, list[float]] = {level: [] for level in levels}
    for number in range(STARTS + 2):
        for level in levels:
            env = isolate(bundle, cache=Cache(), sandbox=level)
            began = time.perf_counter()
            await env.start()
            seconds = time.perf_counter() - began
            await env.aclose()
            # the first ones compile and fill caches
            if number >= 2:
                found[level].append(seconds)
    return {level: statistics.median(seconds) for level, seconds in found.items()}


async def _rates(levels: list[Level]) -> dict[Level, float]:
    """Rollouts per second through one worker of each level, in turn."""
    bundle = dump_bundle(subject.NoOp, local_modules=[subject])
    found: dict[Level, list[float]] = {level: [] for level in levels}
    async with AsyncExitStack() as stack:
        workers = {
            level: await stack.enter_async_context(isolate(bundle, cache=Cache(), sandbox=level)) for level in levels
        }
        groups = {level: await groups_of(env) for level, env in workers.items()}
        for _ in range(ROUNDS):
            for level in levels:
                found[level].append(await rate(groups[level], IN_FLIGHT, GROUPS))
    return {level: statistics.median(values) for level, values in found.items()}
