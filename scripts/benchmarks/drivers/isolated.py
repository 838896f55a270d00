"""`run_group` in a worker of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmax.bundle import dump_bundle
from runner import isolate
from runner.provision import Cache
from scripts.benchmarks import subject
from scripts.benchmarks.drivers.here import groups_of
from scripts.benchmarks.drivers.load import RunGroup, drive


@asynccontextmanager
async def isolated() -> AsyncIterator[RunGroup]:
    """The same environment as a bundle, confined no more than the others are."""
    bundle = dump_bundle(type(subject.chosen()), local_modules=[subject])
    async with isolate(bundle, cache=Cache(), sandbox="off") as env:
        yield await groups_of(env)


if __name__ == "__main__":
    drive(isolated)
