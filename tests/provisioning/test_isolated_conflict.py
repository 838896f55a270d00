"""Bundles that cannot share a venv run at the same time under one caller."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

from runner.models import mock_command
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.integration.example_environment import EXAMPLES
from tests.integration.model_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_two_bundles_with_incompatible_pins_each_see_their_own_release(
    shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMAX_CACHE_DIR", str(shared_cache))
    releases = ["0.8.10", "0.9.0"]
    folders = [tmp_path / release for release in releases]
    for release, folder in zip(releases, folders, strict=True):
        target = f"{EXAMPLES / 'conflict' / 'tables.py'}:Tables"
        await pack(PackRequest(target=target, requirements=[f"tabulate=={release}"]), folder, cache=Cache(shared_cache))
    spec = importlib.util.spec_from_file_location("conflict_run", EXAMPLES / "conflict" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with running(mock_command(), tmp_path / "stderr") as model:
        lines = await asyncio.gather(*(example.rollouts(str(folder), model.base_url) for folder in folders))
    for release, line in zip(releases, lines, strict=True):
        assert f"venv has tabulate {release}, its code saw tabulate {release}, ended ['finished']" in line
