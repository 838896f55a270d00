"""Defects of datasets."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Example
from tests.validation.zoo.sound import Sound


class Raises(Sound):
    finds = "dataset-raises"

    def rows(self) -> list[dict[str, Any]]:
        raise RuntimeError("no rows")


class HasNoFile(Sound):
    finds = "dataset-raises"

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        (base_dir / "rows.jsonl").read_text()
        return await super().create_dataset(split, base_dir, max_examples=max_examples)


class EndsTheProcess(Sound):
    finds = "dataset-raises"

    def rows(self) -> list[dict[str, Any]]:
        os._exit(1)


class TakesNoMaximum(Sound):
    finds = "dataset-raises"

    async def create_dataset(self, split: Any, base_dir: Path) -> Dataset[dict[str, Any]]:  # type: ignore[override]
        return await super().create_dataset(split, base_dir)


class Empty(Sound):
    finds = "dataset-empty"

    def rows(self) -> list[dict[str, Any]]:
        return []


class OrderOfASet(Sound):
    finds = "dataset-differs"

    def rows(self) -> list[dict[str, Any]]:
        rows = {row["question"]: row for row in super().rows()}
        return [rows[question] for question in {*rows}]


class OrderOfChance(Sound):
    finds = "dataset-differs"

    def rows(self) -> list[dict[str, Any]]:
        return random.sample([row for row in super().rows() for _ in range(4)], 12)


class IdsOfChance(Sound):
    finds = "dataset-differs"

    def example(self, row: dict[str, Any]) -> Example[dict[str, Any]]:
        return Example(os.urandom(8).hex(), row)


class OtherFirstExample(Sound):
    finds = "dataset-differs"

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        rows = self.rows()[: max_examples or None]
        return Dataset([self.example(row) for row in reversed(rows)])


class MoreThanAsked(Sound):
    finds = "dataset-unbounded"

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        return await super().create_dataset(split, base_dir)


class SameIds(Sound):
    finds = "example-ids-repeat"

    def example(self, row: dict[str, Any]) -> Example[dict[str, Any]]:
        return Example("example", row)
