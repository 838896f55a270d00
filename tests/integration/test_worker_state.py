"""What a worker holds for its caller: the datasets, over its end and in another one, for as long as they are wanted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs import Dataset, RolloutOutcome
from runner import Limits, RecordEvent, RemoteError
from runner.provision import Cache
from tests.integration.environments import listing
from tests.integration.isolation import bundled, requests_for, unconfined, until

pytestmark = pytest.mark.integration

Open = Callable[..., Any]


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(name: str = "Listing", *, options: Any = None, **arguments: Any) -> AsyncIterator[Any]:
        bundle = bundled(listing, name, folder=str(tmp_path), **arguments)
        async with unconfined(bundle, cache=Cache(shared_cache), **(options or {})) as env:
            yield env

    return opened


def ids(dataset: Dataset[Any]) -> list[str]:
    return [example.id for example in dataset]


async def said(env: Any, dataset: Dataset[Any], position: int, model: str = "m") -> str | None:
    """What a rollout of an example says of it."""
    outcomes: Mapping[str, RolloutOutcome] = await env.run_group(requests_for(dataset[position], model=model))
    (outcome,) = outcomes.values()
    return outcome.error if outcome.termination_reason == "finished" else outcome.termination_reason


async def test_several_datasets_of_one_environment_are_kept_apart(opened: Open, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with opened() as env:
        train = await env.create_dataset("train", one)
        evaluation = await env.create_dataset("eval", one, max_examples=2)
        other = await env.create_dataset("eval", two)
        assert ids(train) == [f"train-one-{n}" for n in range(5)]
        assert ids(evaluation) == ["eval-one-0", "eval-one-1"]
        answers = [await said(env, train, 3), await said(env, evaluation, 1), await said(env, other, 4)]
    assert answers == ["train-one-3", "eval-one-1", "eval-two-4"]


async def test_examples_are_good_for_the_worker_that_replaces_theirs(opened: Open, tmp_path: Path) -> None:
    async with opened() as env:
        train = await env.create_dataset("train", tmp_path)
        evaluation = await env.create_dataset("eval", tmp_path, max_examples=3)
        assert await said(env, train, 0, "exit") == "sandbox_error"
        assert await said(env, evaluation, 2) == f"eval-{tmp_path.name}-2"
        assert await said(env, train, 4) == f"train-{tmp_path.name}-4"
        assert len(env.deaths) == 1


@pytest.mark.parametrize("single", [False, True], ids=["group", "rollout"])
@pytest.mark.parametrize(
    ("again", "text"), [("exit", "exit code 9"), ("hang", "create_dataset('eval') did not end within 0.5 s.")]
)
async def test_a_worker_that_goes_while_it_makes_the_dataset_again_gives_its_rollouts_an_outcome(
    opened: Open, tmp_path: Path, again: str, text: str, single: bool
) -> None:
    records: list[Any] = []
    limits = Limits(dataset_s=0.5, cancel_grace_s=0.2)
    options = {"on_event": lambda event: records.append(event) if isinstance(event, RecordEvent) else None}
    async with opened(again=again, options={**options, "limits": limits}) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        await said(env, dataset, 0, "exit")
        if single:
            ended = [await env.run_rollout(requests_for(dataset[1])[0])]
        else:
            ended = list((await env.run_group(requests_for(dataset[1], 2))).values())
    assert {one.termination_reason for one in ended} == {"sandbox_error"}
    assert all(text in one.error for one in ended)
    assert [event.record.origin for event in records] == ["runner"] * (1 + len(ended))


async def test_a_dataset_that_cannot_be_made_again_is_the_environments_error(opened: Open, tmp_path: Path) -> None:
    async with opened(again="raise") as env:
        dataset = await env.create_dataset("eval", tmp_path)
        await said(env, dataset, 0, "exit")
        with pytest.raises(RemoteError, match="raised RuntimeError: cannot be made again"):
            await said(env, dataset, 1)


@pytest.mark.parametrize(("kind", "size"), [("too long", 4097), ("surrogate", 1)])
async def test_an_example_id_that_cannot_cross_as_it_is_is_one_error(
    opened: Open, tmp_path: Path, kind: str, size: int
) -> None:
    async with opened("LongIds", kind=kind) as env:
        with pytest.raises(RemoteError, match=rf"position 1 cannot cross: it has {size} characters, expected at most"):
            await env.create_dataset("eval", tmp_path)


async def test_the_longest_example_id_crosses_unchanged(opened: Open, tmp_path: Path) -> None:
    async with opened("LongIds", kind="longest") as env:
        assert ids(await env.create_dataset("eval", tmp_path)) == ["fine", "x" * 4096]


async def test_a_dataset_that_nobody_has_any_more_is_forgotten_on_both_sides(opened: Open, tmp_path: Path) -> None:
    async with opened() as env:
        kept = await env.create_dataset("eval", tmp_path)
        for _ in range(20):
            await env.create_dataset("train", tmp_path)
        gc.collect()
        await until(lambda: len(env._pool.datasets) == 1, what="the caller's side")
        # only the payloads of the kept one are left in the worker
        assert await said(env, kept, 0, "count") == "5"
        assert await said(env, kept, 1) == f"eval-{tmp_path.name}-1"


async def test_one_example_of_a_dataset_keeps_all_of_it(opened: Open, tmp_path: Path) -> None:
    async with opened() as env:
        example = (await env.create_dataset("eval", tmp_path))[2]
        gc.collect()
        await env.create_dataset("train", tmp_path)
        (outcome,) = (await env.run_group(requests_for(example))).values()
        assert outcome.error == f"eval-{tmp_path.name}-2"


async def test_a_group_goes_to_the_worker_with_the_least_to_do(opened: Open, tmp_path: Path) -> None:
    def where() -> list[str]:
        return [path.name.split("-")[-1] for path in sorted(tmp_path.glob("waiting-*"))]

    async with opened(options={"workers": 2}) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        large = asyncio.ensure_future(env.run_group(requests_for(dataset[0], 4, model="wait", prefix="a")))
        await until(lambda: len(where()) == 4, what="the large group")
        small = [
            asyncio.ensure_future(env.run_group(requests_for(dataset[0], model="wait", prefix=f"b{number}")))
            for number in range(3)
        ]
        await until(lambda: len(where()) == 7, what="the small groups")
        busy, free = where()[0], {*where()[4:]}
        (tmp_path / "go").touch()
        await asyncio.gather(large, *small)
    assert where()[:4] == [busy] * 4
    assert len(free) == 1
    assert busy not in free


async def test_groups_that_come_at_once_are_spread_by_their_size(opened: Open, tmp_path: Path) -> None:
    async with opened(options={"workers": 2}) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        groups = [
            asyncio.ensure_future(env.run_group(requests_for(dataset[0], size, model="wait", prefix=f"g{number}")))
            for number, size in enumerate((4, 1, 1, 1, 1))
        ]
        await until(lambda: len(list(tmp_path.glob("waiting-*"))) == 8, what="all groups")
        pids = [path.name.split("-")[-1] for path in tmp_path.glob("waiting-*")]
        (tmp_path / "go").touch()
        await asyncio.gather(*groups)
    assert sorted(pids.count(pid) for pid in {*pids}) == [4, 4]
