"""Datasets of published packages: chosen by their manifest before anything is downloaded.

The registry, which is on the network, is stood in for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harbor.models.job.config import DatasetConfig
from harbor.models.trial.config import TaskConfig
from harbor.publisher.packager import Packager

from benchmax.envs.harbor import HarborDataset
from tests.harbor.inside.lab import make_tasks


@dataclass
class Found:
    """One download."""

    path: Path


@dataclass
class Batch:
    """What a download gives."""

    results: list[Found]


@dataclass
class Registry:
    """A dataset's manifest, and the packages it names."""

    refs: dict[str, Path] = field(default_factory=dict)
    downloaded: list[list[str]] = field(default_factory=list)
    output_dirs: list[Path | None] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)

    async def manifest(self, config: DatasetConfig) -> list[TaskConfig]:
        return [TaskConfig(name=f"org/{number}", ref=ref, source="org/set") for number, ref in enumerate(self.refs)]

    async def download_tasks(
        self, task_ids: Sequence[Any], overwrite: bool = False, output_dir: Path | None = None
    ) -> Any:
        self.downloaded.append([task_id.ref for task_id in task_ids])
        self.output_dirs.append(output_dir)
        if self.failures:
            raise self.failures.pop(0)

        return Batch([Found(self.refs[task_id.ref]) for task_id in task_ids])

    async def sleep(self, delay_s: float) -> None:
        self.waits_s.append(delay_s)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with five tasks."""
    made = Registry()
    for task in make_tasks(tmp_path / "packages", 5).iterdir():
        made.refs[f"sha256:{Packager.compute_content_hash(task)[0]}"] = task

    async def get_task_configs(self: DatasetConfig, disable_verification: bool = False) -> list[TaskConfig]:
        return await made.manifest(self)

    monkeypatch.setattr("harbor.models.job.config.DatasetConfig.get_task_configs", get_task_configs)
    monkeypatch.setattr("harbor.tasks.client.TaskClient", lambda: made)
    monkeypatch.setattr("benchmax.envs.harbor.dataset.asyncio.sleep", made.sleep)
    return made


async def made_of(registry: Registry, tmp_path: Path, **options: Any) -> list[str]:
    dataset = await HarborDataset.create(DatasetConfig(name="org/set"), base_dir=tmp_path / "data", **options)
    return [example.id for example in dataset]


def digests(registry: Registry) -> list[str]:
    return sorted(ref.removeprefix("sha256:").lower() for ref in registry.refs)


async def test_all_of_it_is_downloaded_in_one_batch(registry: Registry, tmp_path: Path) -> None:
    assert await made_of(registry, tmp_path) == digests(registry)
    assert [len(batch) for batch in registry.downloaded] == [5]
    assert registry.output_dirs == [tmp_path / "data" / "downloads"]


async def test_only_what_is_chosen_is_downloaded(registry: Registry, tmp_path: Path) -> None:
    evaluation = await made_of(registry, tmp_path, split="eval", eval_ratio=0.4)
    train = await made_of(registry, tmp_path, split="train", eval_ratio=0.4, max_examples=2)
    assert evaluation == digests(registry)[:2]
    assert train == digests(registry)[2:4]
    assert [[ref.removeprefix("sha256:") for ref in batch] for batch in registry.downloaded] == [evaluation, train]


async def test_digests_are_read_in_any_case_and_without_a_prefix(registry: Registry, tmp_path: Path) -> None:
    registry.refs = {ref.removeprefix("sha256:").upper(): task for ref, task in registry.refs.items()}
    assert await made_of(registry, tmp_path, max_examples=1) == digests(registry)[:1]
    assert [len(batch) for batch in registry.downloaded] == [1]


async def test_one_reference_that_is_no_digest_means_that_all_is_downloaded(registry: Registry, tmp_path: Path) -> None:
    (_, task), *rest = registry.refs.items()
    known = digests(registry)
    registry.refs = {"latest": task, **dict(rest)}
    assert await made_of(registry, tmp_path, max_examples=1) == known[:1]
    assert [len(batch) for batch in registry.downloaded] == [5]


async def test_content_that_the_manifest_does_not_name_is_refused(registry: Registry, tmp_path: Path) -> None:
    first = registry.refs[f"sha256:{digests(registry)[0]}"]
    (first / "instruction.md").write_text("Something else.")
    with pytest.raises(RuntimeError, match="package manifest"):
        await made_of(registry, tmp_path)


async def test_two_tasks_with_one_digest_are_refused_before_a_download(registry: Registry, tmp_path: Path) -> None:
    ref, task = next(iter(registry.refs.items()))
    registry.refs[ref.removeprefix("sha256:")] = task
    with pytest.raises(ValueError, match="duplicate task content"):
        await made_of(registry, tmp_path)
    assert registry.downloaded == []


def busy() -> ExceptionGroup[Exception]:
    return ExceptionGroup("downloads", [OSError("busy")])


async def test_a_failed_download_is_tried_three_times(
    registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.failures = [busy(), busy()]
    assert await made_of(registry, tmp_path) == digests(registry)
    assert registry.waits_s == [1.0, 2.0]
    logged = [record for record in caplog.records if record.name == "benchmax.envs.harbor.dataset"]
    assert [record.levelno for record in logged] == [logging.WARNING] * 2


async def test_the_third_failure_is_raised(registry: Registry, tmp_path: Path) -> None:
    last = busy()
    registry.failures = [busy(), busy(), last]
    with pytest.raises(ExceptionGroup) as caught:
        await made_of(registry, tmp_path)
    assert caught.value is last
    assert len(registry.downloaded) == 3


async def test_any_other_failure_is_raised_at_once(registry: Registry, tmp_path: Path) -> None:
    registry.failures = [OSError("no route")]
    with pytest.raises(OSError, match="no route"):
        await made_of(registry, tmp_path)
    assert len(registry.downloaded) == 1
