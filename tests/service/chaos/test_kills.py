"""Server, executors and database are killed at random moments under load, and nothing is lost.

`BENCHMAX_SOAK_S` says for how many seconds, in place of a few; `BENCHMAX_SOAK_SEED` what chance begins with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import require
from tests.service.chaos.campaign import LONGEST_S, Campaign, load_of, seed_of, soak_s
from tests.service.chaos.cluster import cluster
from tests.service.chaos.deployment import Site, site
from tests.service.postgres import programs

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2 * LONGEST_S + soak_s())]


async def campaign_against(place: Site, folder: Path, seed: int) -> str:
    key = place.key()
    place.start("server", "serve", "--executors", "1")
    place.start("executor", "executor")

    def restart() -> list[str]:
        place.start("server-again", "serve", "--executors", "1")
        return ["server-again"]

    campaign = Campaign(place, restart)
    load = load_of(place, key, folder, count=campaign.jobs)

    async def run() -> str:
        await load.run()
        return load.seen()

    return await campaign.run(seed_of(seed), run())


async def test_nothing_is_lost_on_sqlite(confined: None, shared_cache: Path, tmp_path: Path, model_url: str) -> None:
    with site(tmp_path / "site", shared_cache, model_url=model_url) as place:
        print(await campaign_against(place, tmp_path, 1))


async def test_nothing_is_lost_on_postgresql(
    confined: None, shared_cache: Path, tmp_path: Path, model_url: str
) -> None:
    require(programs(), "PostgreSQL")
    with cluster() as server, site(tmp_path / "site", shared_cache, model_url=model_url, server=server) as place:
        print(await campaign_against(place, tmp_path, 2))
