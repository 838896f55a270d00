"""A worker beside the same environment in process and beside other ways to have it in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import dump_bundle
from benchmax.envs import Environment, RolloutRequest
from runner import WorkerEvent, isolate
from runner.isolated import IsolatedEnvironment
from runner.provision import Cache
from scripts.benchmarks import subject
from scripts.benchmarks.drivers.load import BASE_URL, GROUP
from scripts.benchmarks.echo import raw_round_trip
from scripts.benchmarks.peers import IN_PROCESS, OTHERS, OURS, POOLS, PUBLISHED, Drivers, Peer
from scripts.benchmarks.table import Row

ROUNDS = 5
LOADS = ((1, 1500), (125, 8000))
"""Groups in flight, and groups."""
AUTH = StaticBearerAuth("a-token-that-is-not-used")

Figures = Mapping[str, Mapping[str, float]]
"""Medians by the name of what was measured."""


async def measure(*, peers: bool = True) -> list[Row]:
    """Measure and return rows.

    Args:
        peers: Whether to measure all others, too; without them, only ours beside the same in process.
    """
    others = (PUBLISHED, *POOLS, *OTHERS) if peers else ()
    plain, reasons = await _rounds((OURS, IN_PROCESS, *others))
    asking, _ = await _rounds((OURS, IN_PROCESS), BENCHMARK_SUBJECT="Asking")
    rows = [row for depth, _ in LOADS for row in _throughput(plain, str(depth))]
    rows += [row for depth, _ in LOADS for row in _with_headers(asking, str(depth))]
    rows += [
        Row(f"no-op rollouts/s, {peer.name}", "", reasons[peer.name], None, "", None)
        for peer in others
        if peer.name in reasons
    ]
    return [*rows, *await _alone()]


async def _rounds(peers: tuple[Peer, ...], **settings: str) -> tuple[Figures, Mapping[str, str]]:
    """Run each in turn, several times over; return medians, and why there are none."""
    cache = Cache()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    reasons: dict[str, str] = {}
    pythons = {peer.name: await peer.python(cache) for peer in peers}
    with Drivers() as drivers:
        for _ in range(ROUNDS):
            for peer in peers:
                python = pythons[peer.name]
                if peer.name in reasons:
                    continue
                figures = python if isinstance(python, str) else drivers.run(peer, python, LOADS, **settings)
                if isinstance(figures, str):
                    reasons[peer.name] = figures
                    continue
                for name, figure in figures.items():
                    found[peer.name][name].append(figure)
    medians = {
        peer: {name: statistics.median(values) for name, values in figures.items()}
        for peer, figures in found.items()
        if peer not in reasons
    }
    return medians, reasons


def _throughput(figures: Figures, depth: str) -> list[Row]:
    what = f"no-op rollouts/s, groups of {GROUP}, {depth} in flight"
    ours = figures[OURS.name][depth]
    goals: list[tuple[str, float]] = [
        (IN_PROCESS.name, 0.5 if depth == "1" else 0.85),
        (PUBLISHED.name, 0.5 if depth == "1" else 0.85),
    ]
    pools = [peer.name for peer in POOLS if peer.name in figures]
    goals += [(name, 1.3) for name in sorted(pools, key=lambda name: -figures[name][depth])]
    for peer in OTHERS:
        goals.append((peer.name, {"Ray actor": 5, "verifiers' environment server": 100}.get(peer.name, 1.3)))
    return [
        Row(
            what,
            f"{ours:,.0f}",
            f"{figures[name][depth]:,.0f} ({name})",
            ours / figures[name][depth],
            f"≥ {goal:g}",
            ours >= goal * figures[name][depth],
        )
        for name, goal in goals
        if name in figures
    ]


def _with_headers(figures: Figures, depth: str) -> list[Row]:
    ours, here = figures[OURS.name][depth], figures[IN_PROCESS.name][depth]
    what = f"the same with one header request per rollout, {depth} in flight"
    # the goal is for a worker that has enough to do
    goal = 0.6 if depth != "1" else None
    return [
        Row(
            what,
            f"{ours:,.0f}",
            f"{here:,.0f} (in process)",
            ours / here,
            "" if goal is None else f"≥ {goal:g}",
            None if goal is None else ours >= goal * here,
        )
    ]


async def _alone() -> list[Row]:
    """Measure what has a number and no peer, or a peer that is our own."""
    asked, raw = [], []
    for _ in range(ROUNDS):
        asked.append(await _header_round_trip())
        raw.append(await raw_round_trip())
    one, two = [], []
    for _ in range(ROUNDS):
        one.append(await _scoring(1))
        two.append(await _scoring(2))
    cpu = statistics.median([await _caller_cpu() for _ in range(ROUNDS)])
    here, there = await _memory()
    trip, bare = statistics.median(asked), statistics.median(raw)
    faster = statistics.median(one) / statistics.median(two)
    return [
        Row(
            "one header round trip from a rollout (µs)",
            f"{trip * 1e6:.0f}",
            f"{bare * 1e6:.0f} (the same messages over a bare channel)",
            trip / bare,
            "≤ 1.3",
            trip <= 1.3 * bare,
        ),
        Row(
            "CPU-bound scoring, two workers (groups/s)",
            f"{1 / statistics.median(two):.1f}",
            f"{1 / statistics.median(one):.1f} (one worker)",
            faster,
            "≥ 1.8",
            faster >= 1.8,
        ),
        _limit("caller's CPU per rollout, 125 groups in flight (µs)", cpu * 1e6, 6),
        _limit("caller's memory per rollout, 10,000 in flight (kB)", here / 1024, 4),
        _limit("worker's memory per rollout, 10,000 in flight (kB)", there / 1024, 12),
    ]


def _limit(what: str, value: float, goal: float) -> Row:
    return Row(what, f"{value:.1f}", f"{goal:g}", value / goal, f"≤ {goal:g}", value <= goal)


def _isolate(kind: type[Environment[Any, Any]], **options: Any) -> IsolatedEnvironment:
    return isolate(dump_bundle(kind, local_modules=[subject]), cache=Cache(), sandbox="off", **options)


def _requests(example: Any, number: int, *, model: str = "m", size: int = GROUP) -> list[RolloutRequest[Any]]:
    return [RolloutRequest(f"{number}-{k}", example, model, BASE_URL, AUTH) for k in range(size)]


async def _header_round_trip() -> float:
    async with _isolate(subject.AskingInTurn) as env:
        example = (await env.create_dataset("eval", Path()))[0]
        (outcome,) = (await env.run_group(_requests(example, 0, model="1000", size=1))).values()
        return float(outcome.rewards["seconds"])


async def _scoring(workers: int) -> float:
    """Seconds per group."""
    async with _isolate(subject.Scoring, workers=workers) as env:
        example = (await env.create_dataset("eval", Path()))[0]
        await asyncio.gather(*(env.run_group(_requests(example, number)) for number in range(4)))
        began = time.perf_counter()
        await asyncio.gather(*(env.run_group(_requests(example, number)) for number in range(100)))
        return (time.perf_counter() - began) / 100


async def _caller_cpu() -> float:
    """Seconds of this process per rollout, requests made before."""
    async with _isolate(subject.NoOp) as env:
        example = (await env.create_dataset("eval", Path()))[0]
        groups = [_requests(example, number) for number in range(2500)]
        left = iter(groups)

        async def lane() -> None:
            for requests in left:
                await env.run_group(requests)

        await env.run_group(_requests(example, -1))
        gc.collect()
        began = time.process_time()
        await asyncio.gather(*(lane() for _ in range(125)))
        return (time.process_time() - began) / (len(groups) * GROUP)


async def _memory() -> tuple[float, float]:
    """Bytes per rollout in flight, here and in the worker."""
    count = 10_000
    pids: list[int] = []

    def note(event: object) -> None:
        if isinstance(event, WorkerEvent) and event.state == "ready":
            pids.append(event.pid)

    async with _isolate(subject.Waiting, on_event=note) as env:
        example = (await env.create_dataset("eval", Path()))[0]
        groups = [_requests(example, number, model=str(count)) for number in range(count // GROUP)]
        (worker,) = pids
        gc.collect()
        before = _resident(os.getpid()), _resident(worker)
        tasks = [asyncio.ensure_future(env.run_group(requests)) for requests in groups]
        await env.create_dataset("eval", Path(), max_examples=1)
        after = _resident(os.getpid()), _resident(worker)
        await env.create_dataset("eval", Path(), max_examples=2)
        await asyncio.gather(*tasks)
    return (after[0] - before[0]) / count, (after[1] - before[1]) / count


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
