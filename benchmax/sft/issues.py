"""What is wrong with a dataset: one issue per place, and the error that carries them all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MAX_SHOWN_ISSUES", "SFT_DATASET_FORMAT", "SftDatasetError", "SftIssue"]

SFT_DATASET_FORMAT: Final = "benchmax-sft-v1"
"""Name of the format that `benchmax.sft` reads and writes."""

MAX_SHOWN_ISSUES: Final = 20
"""Issues in an error's text; `SftDatasetError.issues` has all of them."""

_BREAKS_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SftIssue:
    """One thing that is wrong with a dataset.

    Args:
        message: What is wrong.
        location: Where in the row: `$` is the row itself, `.key` and `[index]` lead down from there.
        line: Line of the file, from 1; `None` for rows that came from no file.
        row: Row of the dataset, from 0; `None` for an issue of the dataset as a whole.
    """

    message: str
    location: str
    line: int | None = None
    row: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the four fields by name, as JSON can hold them."""
        return {"line": self.line, "location": self.location, "message": self.message, "row": self.row}

    def describe(self) -> str:
        """Return place and message on one line; characters that would break it are shown as escapes."""
        line = "" if self.line is None else f"line {self.line} "
        row = "" if self.row is None else f"row {self.row} "
        text = f"{line}{row}{self.location}: {self.message}"
        return _BREAKS_A_LINE.sub(lambda found: repr(found[0])[1:-1], text)


class SftDatasetError(ValueError):
    """Raised when a dataset is not valid; `issues` has everything that is wrong with it, in order.

    Args:
        issues: At least one.

    Raises:
        ValueError: there is none.
    """

    def __init__(self, issues: Iterable[SftIssue]) -> None:
        self.issues: tuple[SftIssue, ...] = tuple(issues)
        if not self.issues:
            raise ValueError("SftDatasetError needs at least one issue.")
        lines = [f"invalid {SFT_DATASET_FORMAT} dataset: {len(self.issues)} issue(s)"]
        lines += [f"  {issue.describe()}" for issue in self.issues[:MAX_SHOWN_ISSUES]]
        if len(self.issues) > MAX_SHOWN_ISSUES:
            lines.append(f"... and {len(self.issues) - MAX_SHOWN_ISSUES} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[SftDatasetError], tuple[tuple[SftIssue, ...]]]:
        return type(self), (self.issues,)
