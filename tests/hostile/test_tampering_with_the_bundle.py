"""What a bundle writes beside itself changes neither its reward nor what the next worker is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.provision import Cache
from tests.hostile.environments import tampering
from tests.integration.isolation import bundled, requests_for, texts, unconfined

pytestmark = pytest.mark.integration


async def test_the_bundle_a_worker_is_made_of_cannot_be_changed_and_files_are_no_rewards(
    shared_cache: Path, tmp_path: Path
) -> None:
    bundle = bundled(tampering, "Tampering")
    async with unconfined(bundle, cache=Cache(shared_cache), workers=2) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        for number in range(4):
            outcomes = await env.run_group(requests_for(dataset[0], 2, prefix=f"g{number}"))
            assert [outcome.rewards for outcome in outcomes.values()] == [{"x": 0.0}] * 2
            assert texts(outcomes) == [None, None]
    assert list(tmp_path.iterdir()) == []
