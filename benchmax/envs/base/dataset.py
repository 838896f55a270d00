"""Datasets read from JSON Lines files, and paths that stay inside the data folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from benchmax.envs.dataset import Dataset, validate_max_examples
from benchmax.envs.shared_types import Example

__all__ = ["JsonRow", "JsonlDataset", "resolve_dataset_path"]

JsonRow: TypeAlias = dict[str, Any]

PayloadT_co = TypeVar("PayloadT_co", covariant=True)


class JsonlDataset(Dataset[PayloadT_co]):
    """Examples read at once from a UTF-8 file with one JSON object per line; blank lines are skipped.

    Args:
        path: The file.
        row_to_example: Makes an example of one parsed line. What it raises gets a note with file and line.
        max_examples: Stop reading after so many examples; `None` reads all.

    Raises:
        ValueError: `max_examples` is not positive, or a line is not JSON.
        TypeError: a line is not an object, or `row_to_example` did not return an `Example`.
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        row_to_example: Callable[[JsonRow], Example[PayloadT_co]],
        max_examples: int | None = None,
    ) -> None:
        validate_max_examples(max_examples)
        examples: list[Example[PayloadT_co]] = []
        for place, row in _rows(path):
            try:
                example: object = row_to_example(row)
            except Exception as error:
                error.add_note(f"while making an example of {place}")
                raise
            if not isinstance(example, Example):
                raise TypeError(f"{place}: row_to_example must return an Example, got {type(example).__name__}.")
            examples.append(example)
            if len(examples) == max_examples:
                break
        super().__init__(examples)


def _rows(path: str | os.PathLike[str]) -> Iterator[tuple[str, JsonRow]]:
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text:
                continue
            place = f"{os.fspath(path)}:{number}"
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{place}: invalid JSON: {error}.") from error
            if not isinstance(row, dict):
                raise TypeError(f"{place}: expected a JSON object, got {type(row).__name__}.")
            yield place, row


def resolve_dataset_path(base_dir: str | os.PathLike[str], relative_path: str | os.PathLike[str]) -> Path:
    """Join a path below a data folder, following symlinks, without leaving the folder. It need not exist.

    Args:
        base_dir: The data folder; `~` is expanded.
        relative_path: Path below it.

    Returns:
        The absolute path.

    Raises:
        ValueError: `relative_path` is absolute or leads out of `base_dir`.
    """
    if Path(relative_path).is_absolute():
        raise ValueError(f"Dataset path must be relative to base_dir, got {os.fspath(relative_path)!r}.")
    root = Path(base_dir).expanduser().resolve()
    path = (root / relative_path).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"Dataset path {os.fspath(relative_path)!r} must stay within {root}, but leads to {path}.")
    return path
