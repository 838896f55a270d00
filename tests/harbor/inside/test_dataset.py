"""Datasets of tasks in folders: ids from content alone, snapshots, sides, and what an environment makes of them."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harbor.models.job.config import DatasetConfig
from harbor.publisher.packager import Packager
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmax.envs import Example
from benchmax.envs.harbor import HarborDataset
from tests.harbor.inside.lab import make_env, make_task, make_tasks


async def made(folder: Path, base_dir: Path, **options: Any) -> HarborDataset:
    return await HarborDataset.create(DatasetConfig(path=folder), base_dir=base_dir, **options)


def ids(dataset: HarborDataset) -> list[str]:
    return [example.id for example in dataset]


# -- identity and snapshots -----------------------------------------------------------------------------------


async def test_an_id_is_the_hash_of_a_tasks_content(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 4)
    dataset = await made(tasks, tmp_path / "data")
    assert ids(dataset) == sorted(Packager.compute_content_hash(task)[0] for task in tasks.iterdir())
    for example in dataset:
        assert example.payload.path == tmp_path / "data" / "tasks" / example.id
        assert example.payload.source == "tasks"
        assert Packager.compute_content_hash(example.payload.path)[0] == example.id


files = st.dictionaries(st.sampled_from(["tests/a.txt", "solution/b/c.bin", "environment/d", "README.md"]), st.binary())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(files, min_size=1, max_size=4))
async def test_the_same_tasks_under_other_names_have_the_same_ids(contents: list[dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, rename in (("here", "a-{}"), ("there/further", "z-{}")):
            for number, extra in enumerate(contents):
                task = make_task(folder / place / rename.format(number), f"answer-{number}")
                for path, content in extra.items():
                    (task / path).parent.mkdir(parents=True, exist_ok=True)
                    (task / path).write_bytes(content)
        one = await made(folder / "here", folder / "data-1")
        other = await made(folder / "there" / "further", folder / "data-2")
        assert ids(one) == ids(other)
        assert len(one) == len(contents)


async def test_a_snapshot_outlives_its_source(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 1)
    [example] = await made(tasks, tmp_path / "data")
    shutil.rmtree(tasks)
    assert example.payload.path is not None
    assert Packager.compute_content_hash(example.payload.path)[0] == example.id


async def test_an_edited_task_is_another_example(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 1)
    before = ids(await made(tasks, tmp_path / "data"))
    (tasks / "task-0" / "instruction.md").write_text("Something else.")
    after = ids(await made(tasks, tmp_path / "data"))
    assert before != after
    assert sorted(path.name for path in (tmp_path / "data" / "tasks").iterdir()) == sorted(before + after)


async def test_a_snapshot_that_was_tampered_with_is_found_out(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 1)
    [example] = await made(tasks, tmp_path / "data")
    assert example.payload.path is not None
    (example.payload.path / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt")
    with pytest.raises(RuntimeError, match="other content"):
        await made(tasks, tmp_path / "data")


async def test_links_of_a_task_come_along(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    (task / "tests" / "file.txt").symlink_to("../solution/solve.sh")
    (task / "tests" / "folder").symlink_to("../environment")
    (task / "environment" / "nowhere").symlink_to("gone")
    [example] = await made(tmp_path / "tasks", tmp_path / "data")
    assert example.payload.path is not None
    copy = example.payload.path
    assert not (copy / "tests" / "file.txt").is_symlink()
    assert (copy / "tests" / "file.txt").read_text() == "echo 42 > answer"
    assert (copy / "tests" / "folder").readlink() == Path("../environment")
    assert (copy / "environment" / "nowhere").readlink() == Path("gone")


async def test_two_tasks_with_one_content_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_task(tmp_path / "tasks" / name)
    with pytest.raises(ValueError, match="duplicate task content"):
        await made(tmp_path / "tasks", tmp_path / "data")


async def test_a_dataset_without_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    with pytest.raises(ValueError, match="no tasks"):
        await made(tmp_path / "tasks", tmp_path / "data")


async def test_tasks_without_a_verifier_are_there_on_request(tmp_path: Path) -> None:
    shutil.rmtree(make_task(tmp_path / "tasks" / "one") / "tests")
    with pytest.raises(ValueError, match="no tasks"):
        await made(tmp_path / "tasks", tmp_path / "data")
    assert len(await made(tmp_path / "tasks", tmp_path / "data", disable_verification=True)) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_examples": 0}, "max_examples"),
        ({"max_examples": True}, "max_examples"),
        ({"split": "test", "eval_ratio": 0.5}, "split"),
        ({"split": "train"}, "eval_ratio"),
        ({"eval_ratio": 0.5}, "eval_ratio"),
        ({"split": "train", "eval_ratio": 1.0}, "eval_ratio"),
        ({"split": "eval", "eval_ratio": 0}, "automatic eval is disabled"),
        ({"split": "eval", "eval_ratio": 0.5}, "requires at least two dataset examples"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        await made(make_tasks(tmp_path / "tasks", 1), tmp_path / "data", **options)


async def test_only_a_dataset_configuration_is_one(tmp_path: Path) -> None:
    wrong: Any = str(tmp_path)
    with pytest.raises(TypeError, match="DatasetConfig"):
        await HarborDataset.create(wrong, base_dir=tmp_path)


# -- sides ----------------------------------------------------------------------------------------------------


@given(count=st.integers(0, 60), ratio=st.one_of(st.just(0), st.floats(0, 1, exclude_max=True)))
def test_eval_has_the_lowest_ids_and_train_the_rest(count: int, ratio: float) -> None:
    examples: list[Example[Any]] = [Example(f"{number:03}", None) for number in range(count)]
    train, evaluation = HarborDataset(list(reversed(examples))).train_eval_split(ratio)
    expected = 0 if ratio == 0 or count < 2 else min(count - 1, max(1, math.ceil(count * ratio)))
    assert len(evaluation) == expected
    assert ids(evaluation) + ids(train) == [example.id for example in examples]
    assert isinstance(train, HarborDataset)
    assert isinstance(evaluation, HarborDataset)


async def test_a_limited_side_is_a_prefix_of_the_whole_side(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 7)
    whole = await made(tasks, tmp_path / "data")
    train, evaluation = whole.train_eval_split(0.4)
    for split, side in (("train", train), ("eval", evaluation)):
        for limit in (1, 2, 99):
            limited = await made(tasks, tmp_path / "data", split=split, eval_ratio=0.4, max_examples=limit)
            assert ids(limited) == ids(side)[:limit]


# -- what an environment makes of it --------------------------------------------------------------------------


async def test_an_environment_splits_its_dataset(tmp_path: Path) -> None:
    env = make_env(make_tasks(tmp_path / "tasks", 5), eval_ratio=0.4)
    train = await env.create_dataset("train", tmp_path / "data")
    evaluation = await env.create_dataset("eval", tmp_path / "data")
    assert (len(evaluation), len(train)) == (2, 3)
    assert ids(evaluation) + ids(train) == sorted(ids(evaluation) + ids(train))
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["main"]
    for limit in (1, 2):
        assert ids(await env.create_dataset("train", tmp_path / "data", max_examples=limit)) == ids(train)[:limit]
        assert ids(await env.create_dataset("eval", tmp_path / "data", max_examples=limit)) == ids(evaluation)[:limit]


async def test_an_eval_dataset_of_its_own_is_taken_whole(tmp_path: Path) -> None:
    env = make_env(
        make_tasks(tmp_path / "tasks", 2),
        eval_dataset=DatasetConfig(path=make_tasks(tmp_path / "others", 3)),
        eval_ratio=0,
    )
    assert len(await env.create_dataset("eval", tmp_path / "data")) == 3
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["eval"]
    assert len(await env.create_dataset("train", tmp_path / "data")) == 2
    assert len(await env.create_dataset("eval", tmp_path / "data", max_examples=1)) == 1


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize(
    ("count", "ratio", "text"),
    [(3, 0, "automatic eval is disabled"), (1, 0.5, "requires at least two dataset examples")],
)
async def test_an_empty_eval_side_is_refused(
    tmp_path: Path, count: int, ratio: float, text: str, limit: int | None
) -> None:
    env = make_env(make_tasks(tmp_path / "tasks", count), eval_ratio=ratio)
    with pytest.raises(ValueError, match=text):
        await env.create_dataset("eval", tmp_path / "data", max_examples=limit)
    assert len(await env.create_dataset("train", tmp_path / "data")) == count


async def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    wrong: Any = "test"
    with pytest.raises(ValueError, match="unknown dataset split"):
        await make_env(tmp_path).create_dataset(wrong, tmp_path)


async def test_a_dataset_is_resolved_once_per_folder(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path / "tasks", 3)
    env = make_env(tasks)
    before = await env.create_dataset("train", tmp_path / "data")
    (tasks / "task-0" / "instruction.md").write_text("Something else.")
    (tmp_path / "link").symlink_to("data")
    for folder in (tmp_path / "data", tmp_path / "link", tmp_path / "x" / ".." / "data"):
        assert ids(await env.create_dataset("train", folder)) == ids(before)
    assert ids(await env.create_dataset("train", tmp_path / "fresh")) != ids(before)
