"""The venv of a bundle: this installation's benchmax where it fits, the index's where it does not."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from benchmax.bundle import BundleMetadata
from runner.errors import IncompatibleBundleError, RequirementError
from runner.provision import Cache, ProvisionOptions, Venv, provision
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
OURS = importlib.metadata.version("benchmax")
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"


def bundle(*requirements: str, python: str = SERIES, benchmax: str = OURS) -> BundleMetadata:
    return BundleMetadata(
        pip_dependencies=requirements, python_version=python, benchmax_version=benchmax, env_class_source=None
    )


@pytest.fixture
def stocked(index: LocalIndex) -> LocalIndex:
    """An index with stand-ins for what benchmax and the worker need."""
    for name, versions in {
        "cloudpickle": ["3.1"],
        "httpx": ["0.27.0", "0.28.0"],
        "openai": ["1.0", "2.0", "3.0"],
        "packaging": ["24.0", "26.0"],
        "msgspec": ["0.20"],
    }.items():
        for version in versions:
            index.add(name, version)
    return index


def ask(venv: Venv, code: str) -> str:
    return subprocess.run([venv.python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_worker_gets_this_benchmax_without_asking_an_index(
    stocked: LocalIndex, cache: Cache, installer: Family
) -> None:
    stocked.add("task-kit", "1.0", ["httpx<0.28"])
    venv = await provision(
        bundle("task-kit"),
        cache=cache,
        options=ProvisionOptions(index_url=stocked.url, installer=installer),
    )
    assert venv.packages["benchmax"] == OURS
    assert venv.packages["httpx"] == "0.27.0"
    assert {"task-kit", "msgspec", "cloudpickle", "openai", "packaging"} <= venv.packages.keys()
    assert not [path for path in stocked.requests if path.startswith("/simple/benchmax")]
    assert venv.warnings == ()
    assert Path(ask(venv, "import benchmax; print(benchmax.__file__)")).is_relative_to(venv.path)
    # the runner stays with the caller
    assert ask(venv, "import importlib.util; print(importlib.util.find_spec('runner'))") == "None"


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_bundle_that_pins_another_release_of_the_series_gets_that(
    stocked: LocalIndex, cache: Cache, installer: Family
) -> None:
    stocked.add("benchmax", "0.2.4")
    venv = await provision(
        bundle("benchmax==0.2.4"),
        cache=cache,
        options=ProvisionOptions(index_url=stocked.url, installer=installer),
    )
    assert venv.packages == {"benchmax": "0.2.4", "msgspec": "0.20"}


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_dependency_that_pins_another_release_gets_that_and_a_warning(
    stocked: LocalIndex, cache: Cache, installer: Family
) -> None:
    stocked.add("benchmax", "0.2.4")
    stocked.add("pinning", "1.0", ["benchmax==0.2.4"])
    venv = await provision(
        bundle("pinning"),
        cache=cache,
        options=ProvisionOptions(index_url=stocked.url, installer=installer),
    )
    assert venv.packages == {"benchmax": "0.2.4", "msgspec": "0.20", "pinning": "1.0"}
    (warning,) = venv.warnings
    assert warning.startswith("benchmax 0.2.4 from 127.0.0.1")
    assert "pinning" in warning


async def test_requirement_that_this_release_meets_keeps_it(stocked: LocalIndex, cache: Cache) -> None:
    stocked.add("benchmax", "0.2.4")
    venv = await provision(bundle("benchmax>=0.2.1"), cache=cache, options=ProvisionOptions(index_url=stocked.url))
    assert venv.packages["benchmax"] == OURS


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_pin_outside_what_benchmax_works_with_names_pin_and_range(
    stocked: LocalIndex, cache: Cache, installer: Family
) -> None:
    with pytest.raises(RequirementError, match=r"the bundle wants openai==1\.0, but") as caught:
        await provision(
            bundle("openai==1.0"),
            cache=cache,
            options=ProvisionOptions(index_url=stocked.url, installer=installer),
        )
    assert "openai==1.0" in caught.value.message
    assert "benchmax" in caught.value.message
    assert ">=2.0" in caught.value.message
    assert not stocked.requests


async def test_pin_outside_the_series_is_an_error(stocked: LocalIndex, cache: Cache) -> None:
    stocked.add("benchmax", "0.1.0")
    with pytest.raises(RequirementError, match=r"benchmax==0\.1\.0"):
        await provision(bundle("benchmax==0.1.0"), cache=cache, options=ProvisionOptions(index_url=stocked.url))


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (bundle(python="3.10"), "Python 3.10"),
        (bundle(python="2.7"), "Python 2.7"),
        (bundle(python="three"), "'three'"),
        (bundle(benchmax="0.1.9"), "benchmax 0.1.9"),
        (bundle(benchmax="1.2.0"), "benchmax 1.2.0"),
        (bundle(benchmax="unknown"), "cannot be compared"),
        (bundle(benchmax="one"), "'one'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_other_series_is_refused_before_anything_is_looked_for(
    cache: Cache, metadata: BundleMetadata, said: str
) -> None:
    with pytest.raises(IncompatibleBundleError, match=said):
        await provision(metadata, cache=cache)
    assert not cache.root.exists()


async def test_patch_of_the_bundles_release_may_differ(stocked: LocalIndex, cache: Cache) -> None:
    venv = await provision(bundle(benchmax="0.2.0rc1"), cache=cache, options=ProvisionOptions(index_url=stocked.url))
    assert venv.packages["benchmax"] == OURS


async def test_manifest_tells_how_a_venv_was_made(stocked: LocalIndex, cache: Cache) -> None:
    venv = await provision(bundle("packaging>=24"), cache=cache, options=ProvisionOptions(index_url=stocked.url))
    manifest = json.loads((venv.path.parent / "manifest.json").read_text())
    assert manifest["requirements"] == ["packaging>=24"]
    assert manifest["index"] == stocked.url
    assert manifest["packages"] == venv.packages
    assert venv.base_python.resolve() == venv.base_python
    assert venv.python.resolve() == venv.base_python


async def test_bundle_installs_from_the_public_index(shared_cache: Path) -> None:
    venv = await provision(bundle("humanize"), cache=Cache(shared_cache))
    assert venv.packages["benchmax"] == OURS
    assert "openai" not in ask(venv, "import benchmax, msgspec, humanize, sys; print(*sys.modules)").split()
