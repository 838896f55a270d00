"""A build that writes more than it may: the disk, or one file."""

from __future__ import annotations

from typing import Literal

import pytest

from runner.errors import BuildError
from runner.limits import Limits
from runner.provision import Cache, ProvisionOptions, provision_packages
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability
from tests.conftest import require
from tests.integration.local_index import LocalIndex

pytestmark = [pytest.mark.integration, pytest.mark.parametrize("level", ["landlock", "namespaces"])]

MIB = 1024**2

MANY_FILES = """
import time
def build_wheel(directory, settings=None, metadata=None):
    for number in range(64):
        with open(f"{directory}/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    # until it is ended
    time.sleep(1000)
"""

ONE_FILE = """
def build_wheel(directory, settings=None, metadata=None):
    with open(f"{directory}/large", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
"""


async def install(index: LocalIndex, cache: Cache, level: Level, limits: Limits, family: Literal["uv", "pip"]) -> None:
    require(availability(level).available, f"the sandbox level {level}")
    options = ProvisionOptions(index_url=index.url, sandbox=level, installer=family)
    await provision_packages(["filling"], cache=cache, options=options, limits=limits)


@pytest.mark.parametrize("family", ["uv", "pip"])
async def test_build_that_fills_the_disk_is_ended_and_nothing_of_it_is_left(
    index: LocalIndex, cache: Cache, level: Level, family: Literal["uv", "pip"]
) -> None:
    index.add_sdist("filling", "1.0", MANY_FILES)
    with pytest.raises(BuildError, match="reached the limit disk_bytes"):
        await install(index, cache, level, Limits(disk_bytes=32 * MIB), family)
    assert not list(cache.venvs_dir.iterdir())
    assert not cache.built_dir.exists()


async def test_build_that_fills_one_file_fails(index: LocalIndex, cache: Cache, level: Level) -> None:
    index.add_sdist("filling", "1.0", ONE_FILE)
    with pytest.raises(BuildError, match="filling"):
        await install(index, cache, level, Limits(file_bytes=32 * MIB), "uv")
