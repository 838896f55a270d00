"""What docs/sft.md says is so: its code gives its output, and its numbers are the limits."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from benchmax.sft.issues import MAX_SHOWN_ISSUES
from benchmax.sft.rows import MAX_MESSAGES, MAX_METADATA_BYTES, MAX_ROW_BYTES, MAX_TOOLS, RESERVED_METADATA_PREFIX
from benchmax.sft.strict_json import MAX_JSON_DEPTH

PAGE = (Path(__file__).parents[2] / "docs" / "sft.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


def test_the_code_runs_and_prints_what_stands_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), "docs/sft.md", "exec"), {})
    assert printed.getvalue() == block("text")


@pytest.mark.parametrize(
    "text",
    [
        f"1 to {MAX_MESSAGES:,} messages",
        f"up to {MAX_TOOLS} tools",
        f"at most {MAX_METADATA_BYTES:,} bytes",
        f"at most {MAX_ROW_BYTES:,} bytes",
        f"more than {MAX_JSON_DEPTH} objects and lists",
        f"the text shows {MAX_SHOWN_ISSUES}",
        RESERVED_METADATA_PREFIX,
    ],
)
def test_the_numbers_are_the_limits(text: str) -> None:
    assert text in PAGE.replace("\n", " ")
