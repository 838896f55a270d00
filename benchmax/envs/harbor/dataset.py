"""Datasets of Harbor tasks: resolved, downloaded, and kept as snapshots that are named after their content."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from benchmax.envs.dataset import Dataset, validate_max_examples
from benchmax.envs.harbor.dep_check import require_harbor
from benchmax.envs.shared_types import DatasetSplit, Example

if TYPE_CHECKING:
    from harbor.models.job.config import DatasetConfig
    from harbor.models.trial.config import TaskConfig

__all__ = ["HarborDataset", "one_side", "validate_eval_ratio", "whole_path"]

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

_RETRY_DELAYS_S: Final = (1.0, 2.0)
"""Waits between attempts to download; a registry that is busy for longer is down."""

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)


def validate_eval_ratio(value: float) -> float:
    """Return `value` unchanged if it is a number from 0 to below 1.

    Raises:
        ValueError: it is anything else.
    """
    given: object = value
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < 1:
        raise ValueError(f"eval_ratio must be a number from 0 to below 1, got {value!r}.")
    return value


def _eval_count(total: int, ratio: float) -> int:
    if ratio == 0 or total < 2:
        return 0
    return min(total - 1, max(1, math.ceil(total * ratio)))


def whole_path(path: str | os.PathLike[str]) -> Path:
    """Return a path without `~`, links and relative parts."""
    return Path(path).expanduser().resolve()


def one_side(ordered: Sequence[ItemT], split: DatasetSplit, ratio: float) -> Sequence[ItemT]:
    """Return one side of a dataset's examples, which are ordered by id.

    Raises:
        ValueError: the eval side is asked for, and is empty.
    """
    count = _eval_count(len(ordered), ratio)
    if split == "train":
        return ordered[count:]
    if ratio == 0:
        raise ValueError("There is no eval split: automatic eval is disabled by eval_ratio=0. Give an eval_dataset.")
    if count == 0:
        raise ValueError(
            f"There is no eval split: it requires at least two dataset examples, and there is {len(ordered)}. "
            "Give an eval_dataset."
        )
    return ordered[:count]


class HarborDataset(Dataset["TaskConfig"]):
    """Tasks of Harbor in the order of their ids; an id is the hash of a task's content, wherever the task lies."""

    @classmethod
    async def create(
        cls,
        config: DatasetConfig,
        *,
        base_dir: str | os.PathLike[str],
        disable_verification: bool = False,
        max_examples: int | None = None,
        split: DatasetSplit | None = None,
        eval_ratio: float | None = None,
    ) -> HarborDataset:
        """Resolve a dataset and keep a snapshot of each of its tasks.

        Args:
            config: Where the tasks are; left as it is.
            base_dir: Folder for `downloads` and for the snapshots in `tasks`; `~` is expanded.
            disable_verification: Whether tasks without a verifier are tasks, too.
            max_examples: At most so many; `None` means all.
            split: One side of the dataset; `None` means all of it.
            eval_ratio: Share of the eval side, from 0 to below 1; with `split` only.

        Raises:
            ValueError: an argument is out of range, there are no tasks, the eval side is empty, or two tasks have the
                same content.
            TypeError: `config` is not a `DatasetConfig`.
            RuntimeError: a snapshot is not what it is named after, or a package's manifest names other content.
            ImportError: Harbor is not installed.
        """
        require_harbor()
        from harbor.models.job.config import DatasetConfig

        validate_max_examples(max_examples)
        if split not in (None, "train", "eval"):
            raise ValueError(f"split must be None, 'train' or 'eval', got {split!r}.")
        if (split is None) != (eval_ratio is None):
            raise ValueError("eval_ratio is required with split, and makes no sense without; give both or none.")
        if eval_ratio is not None:
            validate_eval_ratio(eval_ratio)
        given: object = config
        if not isinstance(given, DatasetConfig):
            raise TypeError(f"HarborDataset.create needs a DatasetConfig, got {type(given).__name__}.")

        root = await asyncio.to_thread(whole_path, base_dir)
        downloads, snapshots = root / "downloads", root / "tasks"
        for folder in (downloads, snapshots):
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        resolved = config.model_copy(deep=True, update={"download_dir": downloads})
        tasks = await resolved.get_task_configs(disable_verification=disable_verification)
        if not tasks:
            raise ValueError("The Harbor dataset has no tasks; check its path or name, and its filters.")

        digests = _manifest_digests(tasks)
        if digests is not None:
            _require_distinct(digests)
            order = sorted(range(len(tasks)), key=digests.__getitem__)
            chosen = _select(order, split, eval_ratio, max_examples)
            tasks, digests = [tasks[index] for index in chosen], [digests[index] for index in chosen]

        paths = await _download(tasks, overwrite=config.overwrite, output_dir=downloads)
        examples = await asyncio.to_thread(_snapshot_all, tasks, paths, snapshots)
        if digests is None:
            return cls(_select(examples, split, eval_ratio, max_examples))
        if (found := [example.id for example in examples]) != digests:
            strange = sorted(set(found) - set(digests))
            raise RuntimeError(
                f"The package manifest and the downloaded tasks differ: {strange} are not in it. "
                "Remove the downloads and try again; if that does not help, the package is damaged."
            )
        return cls(examples)

    def train_eval_split(self, ratio: float) -> tuple[HarborDataset, HarborDataset]:
        """Split into train and eval; eval, which has the lowest ids, may be empty.

        Args:
            ratio: Share of the eval side, from 0 to below 1; rounded up, and train keeps at least one.

        Raises:
            ValueError: `ratio` is out of range.
        """
        ordered = sorted(self, key=lambda example: example.id)
        count = _eval_count(len(ordered), validate_eval_ratio(ratio))
        return HarborDataset(ordered[count:]), HarborDataset(ordered[:count])


def _select(
    ordered: Sequence[ItemT], split: DatasetSplit | None, ratio: float | None, max_examples: int | None
) -> Sequence[ItemT]:
    if split is not None and ratio is not None:
        ordered = one_side(ordered, split, ratio)
    return ordered[:max_examples]


def _manifest_digests(tasks: Sequence[TaskConfig]) -> list[str] | None:
    """Return the content hashes that a package's manifest gives, if it gives all of them."""
    from harbor.models.task.id import PackageTaskId

    digests = []
    for task in tasks:
        task_id = task.get_task_id()
        if not isinstance(task_id, PackageTaskId):
            return None
        match = _DIGEST.fullmatch(task_id.ref or "")
        if match is None:
            return None
        digests.append(match[1].lower())
    return digests


def _require_distinct(hashes: Sequence[str]) -> None:
    if repeated := sorted(content for content, count in Counter(hashes).items() if count > 1):
        raise ValueError(f"The Harbor dataset has duplicate task content: {repeated}. Remove the copies.")


async def _download(tasks: Sequence[TaskConfig], *, overwrite: bool, output_dir: Path) -> list[Path]:
    from harbor.tasks.client import TaskClient

    task_ids = [task.get_task_id() for task in tasks]
    delays_s = iter(_RETRY_DELAYS_S)
    while True:
        try:
            batch = await TaskClient().download_tasks(task_ids, overwrite=overwrite, output_dir=output_dir)
            return [result.path for result in batch.results]
        except ExceptionGroup as error:
            delay_s = next(delays_s, None)
            if delay_s is None:
                raise
            logger.warning("Downloading %d Harbor tasks failed: %s; trying again in %g s.", len(tasks), error, delay_s)
        await asyncio.sleep(delay_s)


def _snapshot_all(tasks: Sequence[TaskConfig], paths: Sequence[Path], snapshots: Path) -> list[Example[TaskConfig]]:
    from harbor.models.trial.config import TaskConfig

    hashes = [_content_hash(path) for path in paths]
    _require_distinct(hashes)
    examples = []
    for task, path, content in zip(tasks, paths, hashes, strict=True):
        snapshot = snapshots / content
        if not snapshot.exists():
            _copy_task(path, snapshot)
        if (found := _content_hash(snapshot)) != content:
            raise RuntimeError(
                f"The snapshot {snapshot} holds other content ({found}) than it is named after. "
                "Remove it and create the dataset again."
            )
        examples.append(Example(content, TaskConfig(path=snapshot, source=task.source)))
    return sorted(examples, key=lambda example: example.id)


def _content_hash(path: Path) -> str:
    from harbor.publisher.packager import Packager

    return Packager.compute_content_hash(path)[0]


def _copy_task(source: Path, snapshot: Path) -> None:
    """Copy a task so that the copy is whole as soon as it has its name."""
    source = source.expanduser().resolve()
    partial = Path(tempfile.mkdtemp(prefix=f".{snapshot.name}.", dir=snapshot.parent))
    try:
        _copy_folder(source, partial)
        try:
            partial.rename(snapshot)
        except OSError:
            # somebody else was quicker; what is there is checked like any other snapshot
            if not snapshot.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_folder(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_symlink() and not entry.is_file():
            # Harbor's hash leaves out what is behind a link to a folder, and its sandboxes get the link as it is
            place.symlink_to(entry.readlink())
        elif entry.is_dir():
            place.mkdir()
            _copy_folder(entry, place)
        else:
            # a link to a file becomes the file, whose content is part of the hash
            shutil.copy2(entry, place)
    shutil.copystat(source, target)
