"""Data of isolated environments: the folder itself, an overlay or a copy; what a worker writes stays its own."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from runner import isolate
from runner.provision import Cache
from runner.sandbox import probe
from runner.sandbox.data import can_overlay
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import Level
from tests.conftest import require
from tests.integration.environments import noting
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("named", [True, False], ids=["named before", "not named"])
@pytest.mark.parametrize("level", get_args(Level))
async def test_a_worker_sees_what_it_writes_and_the_callers_folder_does_not_change(
    level: Level, named: bool, shared_cache: Path, tmp_path: Path
) -> None:
    require(probe.availability(level).available, f"sandbox level {level}")
    data = tmp_path / "data"
    data.mkdir()
    (data / "notes.txt").write_text("one\n")
    env = isolate(bundled(noting, "Noting"), sandbox=level, cache=Cache(shared_cache), data=data if named else None)
    async with env:
        dataset = await env.create_dataset("eval", data)
        lines = [
            outcome.rewards["lines"]
            for prefix in ("a", "b")
            for outcome in (await run_one(env, dataset, "notes.txt", prefix=prefix)).values()
        ]
        overlaid = named and level == "namespaces" and can_overlay(data, this_machine())
        assert env.data == ("real folder" if level == "off" else "overlay" if overlaid else "copy")
    assert lines == [2.0, 3.0]
    assert (data / "notes.txt").read_text() == ("one\nmine\nmine\n" if level == "off" else "one\n")
