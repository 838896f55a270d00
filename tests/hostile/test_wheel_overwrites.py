"""Wheels that bring files for places that are not theirs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import ProvisionError
from runner.provision import Cache, ProvisionOptions, Venv, provision_packages
from tests.hostile.test_wheel_pth import state
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("installer", ["uv", "pip"])]

SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{SERIES}/site-packages"


async def install(index: LocalIndex, cache: Cache, installer: Family, *requirements: str) -> Venv:
    options = ProvisionOptions(index_url=index.url, installer=installer)
    return await provision_packages(requirements, cache=cache, options=options)


async def test_data_files_over_another_package_change_no_other_venv_and_no_cache(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("victim", "1.0", files={"victim_more.py": "VALUE = 'right'\n"})
    index.add(
        "intruder", "1.0", ["victim"], files={f"intruder-1.0.data/data/{SITE}/victim_more.py": "VALUE = 'wrong'\n"}
    )
    other = await install(index, cache, installer, "victim")
    before = state(other.path)
    together = await install(index, cache, installer, "intruder")
    assert set(together.packages) == {"victim", "intruder"}
    assert state(other.path) == before
    # one more venv from the cache in which both packages now are
    index.add("bystander", "1.0", ["victim"])
    again = await install(index, cache, installer, "bystander")
    (clean,) = again.path.rglob("victim_more.py")
    assert clean.read_text() == "VALUE = 'right'\n"


HIDDEN = "taker-1.0.data/purelib"
"""Where a wheel puts what installers do not look at as metadata."""

REPLACEMENTS: Mapping[str, Mapping[str, str]] = {
    "interpreter": {"taker-1.0.data/data/bin/python": "#!/bin/sh\n"},
    "interpreter's other name": {f"taker-1.0.data/data/bin/python{SERIES}": "#!/bin/sh\n"},
    "interpreter as a script": {"taker-1.0.data/scripts/python": "#!python\n"},
    "interpreter as an entry point": {
        "taker-1.0.dist-info/entry_points.txt": "[console_scripts]\npython = taker:main\npython3 = taker:main\n"
    },
    "configuration": {"taker-1.0.data/data/pyvenv.cfg": "home = /nowhere\n"},
    "lock": {"taker-1.0.data/data/pylock.toml": 'lock-version = "1.0"\n'},
}


@pytest.mark.parametrize("part", REPLACEMENTS)
async def test_package_that_takes_the_place_of_a_part_of_the_venv_is_refused_by_name(
    index: LocalIndex, cache: Cache, installer: Family, part: str
) -> None:
    index.add("taker", "1.0", files=REPLACEMENTS[part])
    base = Path(os.path.realpath(sys.executable))
    before = (base.stat().st_size, base.stat().st_mtime_ns)
    with pytest.raises(ProvisionError) as caught:
        await install(index, cache, installer, "taker")
    assert "'taker" in caught.value.message
    assert "belongs to the venv" in caught.value.message or "not a valid package" in caught.value.message
    assert (base.stat().st_size, base.stat().st_mtime_ns) == before
    assert not list(cache.venvs_dir.iterdir())


ESCAPES = {
    "upwards": {"../../../../../outside.txt": ""},
    "upwards from the data": {"taker-1.0.data/data/../../../../../outside.txt": ""},
    "upwards from the scripts": {"taker-1.0.data/scripts/../../../outside.txt": ""},
}


@pytest.mark.parametrize("way", ESCAPES)
async def test_files_never_land_outside_the_venv(
    index: LocalIndex, cache: Cache, installer: Family, tmp_path: Path, way: str
) -> None:
    index.add("taker", "1.0", files=ESCAPES[way])
    index.add("other", "1.0")
    other = await install(index, cache, installer, "other")
    before = state(other.path)
    venv: Venv | None = None
    try:
        venv = await install(index, cache, installer, "taker")
    except ProvisionError as error:
        assert "'taker" in error.message
        assert "not a valid package" in error.message
    # an installer's own cache holds a wheel's files unpacked, whatever their names
    allowed = [cache.uv_dir, cache.pip_dir, *([venv.path] if venv is not None else [])]
    landed = [path for path in tmp_path.rglob("outside.txt") if not any(map(path.is_relative_to, allowed))]
    assert landed == []
    assert state(other.path) == before


async def test_absolute_path_in_a_wheel_is_not_followed(
    index: LocalIndex, cache: Cache, installer: Family, tmp_path: Path
) -> None:
    aim = tmp_path / "aim.txt"
    index.add("taker", "1.0", files={str(aim): ""})
    try:
        await install(index, cache, installer, "taker")
    except ProvisionError as error:
        assert "not a valid package" in error.message
    assert not aim.exists()


@pytest.mark.parametrize(
    "files",
    [
        {f"{HIDDEN}/bogus-9.dist-info/INSTALLER": "nobody"},
        {f"{HIDDEN}/bogus-9.dist-info/METADATA": "Metadata-Version: 2.1\n"},
        {f"{HIDDEN}/bogus-9.dist-info/METADATA": "\N{SNOWMAN}" * 3 + "\nName: bogus\nVersion: not a version\n"},
        {f"{HIDDEN}/bogus-9.dist-info/RECORD": "../../../../../../etc/passwd,sha256=x,1\n\x00,,\n"},
        {f"{HIDDEN}/bogus.egg-info/PKG-INFO": "Name: bogus\nVersion: 1\n"},
    ],
)
async def test_folders_that_look_like_packages_break_nothing(
    index: LocalIndex, cache: Cache, installer: Family, files: Mapping[str, str]
) -> None:
    index.add("taker", "1.0", files=files)
    venv = await install(index, cache, installer, "taker")
    assert venv.packages["taker"] == "1.0"
    assert await install(index, cache, installer, "taker") == venv
