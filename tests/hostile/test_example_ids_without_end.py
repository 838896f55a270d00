"""A dataset without end, told honestly or by a worker that lies: one error that says how many were expected at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import Limits, RemoteError, WorkerLostError, isolate
from runner.protocol import DatasetPart, encode
from runner.provision import Cache
from tests.hostile.environments import endless, speaking
from tests.integration.isolation import bundled, run_one, unconfined

pytestmark = pytest.mark.integration


def memory_mib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (["x"] * 10_000, r"gave 50000 example ids of 50000 bytes, expected at most 40000 of 20000000 bytes"),
        (["é" * 4096] * 100, r"gave 2500 example ids of 20480000 bytes, expected at most 40000 of 20000000 bytes"),
    ],
    ids=["many", "long"],
)
async def test_a_worker_that_sends_ids_without_end_is_ended(
    shared_cache: Path, tmp_path: Path, ids: list[str], text: str
) -> None:
    (tmp_path / "dataset.work").write_bytes(encode(DatasetPart(call=1, ids=ids)))
    limits = Limits(dataset_examples=40_000, dataset_bytes=20_000_000)
    before = memory_mib()
    async with unconfined(bundled(speaking, "Speaking", endless=True), cache=Cache(shared_cache), limits=limits) as env:
        with pytest.raises(WorkerLostError, match=text):
            await env.create_dataset("eval", tmp_path)
        (tmp_path / "dataset.work").unlink()
        (tmp_path / "honest.txt").touch()
        dataset = await env.create_dataset("eval", tmp_path)
        assert [outcome.error for outcome in (await run_one(env, dataset, "honest")).values()] == [None]
    assert memory_mib() - before < 100


@pytest.mark.parametrize(
    ("size", "limits"),
    [(6, Limits(dataset_examples=25_000)), (4000, Limits(dataset_bytes=2_000_000))],
    ids=["many", "long"],
)
async def test_an_honest_dataset_that_is_too_large_is_the_bundles_error_and_a_part_of_it_can_be_had(
    shared_cache: Path, tmp_path: Path, size: int, limits: Limits
) -> None:
    async with isolate(bundled(endless, "Endless", size=size), cache=Cache(shared_cache), limits=limits) as env:
        with pytest.raises(RemoteError, match=r"Ask for fewer with max_examples, or raise limits\.dataset_examples"):
            await env.create_dataset("eval", tmp_path)
        # long ids travel in several messages
        dataset = await env.create_dataset("eval", tmp_path, max_examples=400)
        assert [example.id for example in dataset] == [f"{number:0{size}d}" for number in range(400)]
        assert env.deaths == ()
