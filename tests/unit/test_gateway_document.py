"""The page on the gateway has every code that a client can get, and every limit there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from runner.limits import Limits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gateway.md").read_text("utf-8")
SOURCES = [path.read_text("utf-8") for path in sorted((ROOT / "runner" / "gateway").glob("*.py"))]


def test_the_codes_on_the_page_are_those_that_there_are() -> None:
    table = PAGE.partition("## Errors")[2].partition("## Limits")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    raised = {code for source in SOURCES for code in re.findall(r'code(?:: str)?\s*=\s*"([a-z_]+)"', source)}
    assert told - {"replay_mismatch", "replay_missing"} == raised


def test_the_page_names_every_limit_of_the_gateway() -> None:
    names = {field.name for field in dataclasses.fields(Limits)}
    ours = {name for name in names if re.match(r"model_|request|answer_|trace_|rollout_trace|context_", name)}
    assert {name for name in ours if f"{name}`" in PAGE} == ours
