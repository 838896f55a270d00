"""A whole dataset, read from a JSON Lines file or made of rows; it exists only if every row is valid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar

from benchmax.sft.issues import SFT_DATASET_FORMAT, SftDatasetError, SftIssue
from benchmax.sft.rows import check_row
from benchmax.sft.strict_json import StrictJsonError, parse_json

__all__ = ["SFT_DATASET_FORMAT", "SftDataset"]

DatasetT = TypeVar("DatasetT", bound="SftDataset")

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\f\v"
"""What a line that is skipped may consist of."""


class SftDataset:
    """Rows in the format `benchmax-sft-v1`, every one of them valid; made by `from_jsonl` or `from_rows`.

    Each row is an object with `messages` and perhaps `tools` and `metadata`. It cannot be changed: rows are copies,
    to be treated as read-only.
    """

    __slots__ = ("_lines", "_rows")

    _lines: tuple[bytes, ...]
    _rows: tuple[dict[str, Any], ...]

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse to make one of unchecked rows.

        Raises:
            TypeError: always.
        """
        raise TypeError("SftDataset cannot be constructed directly; use SftDataset.from_jsonl or SftDataset.from_rows.")

    @classmethod
    def from_jsonl(cls, path: str | os.PathLike[str]) -> Self:
        """Read a UTF-8 file with one row per line; blank lines are skipped.

        Args:
            path: The file.

        Raises:
            SftDatasetError: it has no rows, or some are not valid; carries every issue with its line and row.
            OSError: the file cannot be read.
        """
        checked = _CheckedRows()
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.removesuffix(b"\n")
                if text.strip(_BLANK):
                    checked.add_line(text, number)
        return _dataset(cls, checked)

    @classmethod
    def from_rows(cls, rows: Iterable[object]) -> Self:
        """Copy rows that are Python values already.

        Args:
            rows: Dictionaries of nothing but the types that a JSON parser makes.

        Raises:
            SftDatasetError: there are none, or some are not valid; carries every issue with its row.
        """
        checked = _CheckedRows()
        for row in rows:
            checked.add(row)
        return _dataset(cls, checked)

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows in order, with the keys they were given and no others."""
        return self._rows

    def to_jsonl_bytes(self) -> bytes:
        """Return the rows in canonical form: one line each, keys sorted, UTF-8, every line ended.

        Reading it back gives an equal dataset, and again these bytes.
        """
        return b"".join(line + b"\n" for line in self._lines)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._rows)} rows>"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"SftDataset is immutable; make a new one instead of setting {name!r}.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"SftDataset is immutable; {name!r} cannot be deleted.")

    def __reduce__(self) -> tuple[Callable[[Iterable[object]], Self], tuple[tuple[dict[str, Any], ...]]]:
        return type(self).from_rows, (self._rows,)


class _CheckedRows:
    """Rows so far: the canonical lines of the valid ones, and the issues of the others."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.issues: list[SftIssue] = []
        self._count = 0

    def add_line(self, line: bytes, number: int) -> None:
        """Parse and check one line of a file."""
        try:
            row = _parsed(line, is_first=number == 1)
        except StrictJsonError as error:
            self.issues.append(SftIssue(str(error), "$", number, self._count))
            self._count += 1
        else:
            self.add(row, number)

    def add(self, row: object, line: int | None = None) -> None:
        """Check one row."""
        canonical, problems = check_row(row)
        self.issues += [SftIssue(message, location, line, self._count) for location, message in problems]
        self.lines.append(canonical)
        self._count += 1


def _parsed(line: bytes, *, is_first: bool) -> object:
    if is_first and line.startswith(_BOM):
        raise StrictJsonError("file starts with a UTF-8 BOM; save it without one")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"line is not valid UTF-8: {error.reason} at byte {error.start}") from error
    return parse_json(text)


def _dataset(cls: type[DatasetT], checked: _CheckedRows) -> DatasetT:
    if checked.issues:
        raise SftDatasetError(checked.issues)
    if not checked.lines:
        raise SftDatasetError([SftIssue("dataset contains no rows", "$")])
    made = object.__new__(cls)
    object.__setattr__(made, "_lines", tuple(checked.lines))
    # read back, so that nothing is shared with the caller's own objects
    object.__setattr__(made, "_rows", tuple(map(parse_json, (line.decode() for line in checked.lines))))
    return made
