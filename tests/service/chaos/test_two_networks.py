"""Executors in two network namespaces share a database and a bucket, both in one of them; everything is killed, and the
cable between them is pulled out for longer than a lease."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import require
from tests.service.chaos import load
from tests.service.chaos.campaign import LONGEST_S, Campaign, load_of, seed_of, soak_s
from tests.service.chaos.cluster import cluster
from tests.service.chaos.deployment import LEASE_S, Site, site
from tests.service.chaos.networks import CLIENTS, HERE, Networks, blocker, inside, networks
from tests.service.chaos.unit import Unit
from tests.service.cli.running import free_port
from tests.service.postgres import programs

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2 * LONGEST_S + soak_s())]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def pair() -> Iterator[Networks]:
    found = blocker()
    require(not found, found)
    with networks() as made:
        yield made


@contextlib.contextmanager
def bucket(folder: Path, pair: Networks, environ: Mapping[str, str]) -> Iterator[str]:
    """Have a bucket, and give its URL as the service takes it."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(port)]
    unit = Unit("bucket", command, folder=folder, environ=environ, network=pair.here)
    try:
        unit.said("Running on")
        make = f"from tests.service.s3 import ask; ask({port}, 'PUT', '/chaos', b'')"
        subprocess.run(inside(pair.here, sys.executable, "-c", make), check=True, cwd=ROOT)
        yield f"s3://chaos/below?endpoint=http://{HERE}:{port}&region=us-east-1"
    finally:
        unit.end()


async def run_in(network: str, module: str, given: object, environ: Mapping[str, str]) -> str:
    """Run one of our programs in a namespace; return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *inside(network, sys.executable, "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=dict(environ),
    )
    try:
        out, _ = await process.communicate(json.dumps(given).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, module
    return out.decode().strip()


def start(place: Site, pair: Networks, tail: str = "") -> list[str]:
    """Start what there is on each machine; return the names."""
    names = [f"server{tail}", f"executor-there{tail}"]
    place.start(names[0], "serve", "--executors", "1", network=pair.here)
    place.start(names[1], "executor", machine="there", network=pair.there)
    return names


def both_have_worked(place: Site) -> bool:
    """Whether jobs were begun on both machines."""
    logs = [unit.log.read_text() for name, unit in place.units.items() if "again" not in name]
    return all(", attempt " in log for log in logs)


async def test_nothing_is_lost_between_two_machines(warm_cache: Path, tmp_path: Path, pair: Networks) -> None:
    require(programs(), "PostgreSQL")
    credentials = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": f"bucket-{secrets.token_hex(20)}",
        "AWS_REGION": "us-east-1",
    }
    environ = {**os.environ, **credentials}
    with (
        cluster(network=pair.here, address=HERE, clients=CLIENTS) as server,
        bucket(tmp_path, pair, environ) as blobs_url,
        site(
            tmp_path / "site",
            warm_cache,
            server=server,
            network_database=True,
            blobs_url=blobs_url,
            host=HERE,
            environ=credentials,
        ) as place,
    ):
        key = place.key()
        start(place, pair)
        place.disturbances["network"] = lambda chance: pair.cut(LEASE_S * chance.uniform(0.3, 1.5))

        async def read(url: str, digests: list[str], hidden: Mapping[str, str]) -> list[str]:
            given = {"url": url, "digests": digests, "secrets": dict(hidden)}
            found: list[str] = json.loads(await run_in(pair.here, "tests.service.chaos.contents", given, environ))
            return found

        campaign = Campaign(place, lambda: start(place, pair, "-again"), read, jobs=12, kills=8)
        clients = load.given(load_of(place, key, tmp_path, count=campaign.jobs))
        print(await campaign.run(seed_of(3), run_in(pair.there, "tests.service.chaos.load", clients, environ)))
        assert both_have_worked(place)
