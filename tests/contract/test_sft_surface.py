"""Names of the package, where they are defined, and what importing it loads."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import benchmax.sft

HEAVY = {
    "openai", "httpx", "httpx2", "httpcore", "httpcore2", "pydantic", "anyio", "asyncio", "cloudpickle", "harbor",
    "benchmax.transport", "benchmax.envs",
}  # fmt: skip


def test_the_exports_are_these() -> None:
    assert benchmax.sft.__all__ == ["SFT_DATASET_FORMAT", "SftDataset", "SftDatasetError", "SftIssue"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("dataset", "SftDataset SFT_DATASET_FORMAT"),
        ("issues", "SftDatasetError SftIssue"),
        ("rows", "MAX_MESSAGES MAX_TOOLS MAX_ROW_BYTES MAX_METADATA_BYTES RESERVED_METADATA_PREFIX"),
        ("strict_json", "MAX_JSON_DEPTH"),
    ],
)
def test_the_submodules_have_these_names(module: str, names: str) -> None:
    defining = importlib.import_module(f"benchmax.sft.{module}")
    assert set(names.split()) <= set(defining.__all__)
    for name in names.split():
        value = getattr(defining, name)
        assert getattr(value, "__module__", defining.__name__) == defining.__name__


def test_importing_reading_and_writing_load_nothing_heavy(tmp_path: object) -> None:
    code = f"""
import pathlib, sys
from benchmax.sft import *
path = pathlib.Path({str(tmp_path)!r}) / "data.jsonl"
dataset = SftDataset.from_rows([{{"messages": [{{"role": "assistant", "content": "a"}}]}}])
path.write_bytes(dataset.to_jsonl_bytes())
assert SftDataset.from_jsonl(path).rows == dataset.rows
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & HEAVY
