"""Bundles of other Python series than the caller's run in their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmax.bundle import Bundle, BundleMetadata
from runner import Artifact, InterpreterNotFoundError, isolate
from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.provision.interpreter import find_interpreter
from tests.conftest import require
from tests.integration.isolation import requests_for, texts

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE = '''
import sys
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt

class Which(Environment):
    """Says which Python it runs on."""

    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([Example("only", None)])

    async def run_rollout(self, request):
        return RolloutAttempt(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"x": 1},
            error="%d.%d" % sys.version_info[:2],
        )
'''

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize("series", [series for series in ("3.11", "3.12", "3.13") if series != HERE])
async def test_a_bundle_of_another_installed_series_runs_in_that_series(
    shared_cache: Path, tmp_path: Path, series: str
) -> None:
    cache = Cache(shared_cache)
    try:
        found = await find_interpreter(series, python=None, cache=cache)
    except InterpreterNotFoundError:
        found = None
    require(found, f"Python {series}")
    (tmp_path / "which.py").write_text(SOURCE)
    request = PackRequest(target=f"{tmp_path / 'which.py'}:Which", python=series)
    artifact = await pack(request, tmp_path / "artifact", cache=cache)
    assert artifact.bundle.metadata.python_version == series
    async with isolate(artifact, cache=cache) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        outcomes = await env.run_group(requests_for(dataset[0]))
        assert env.venv.python_version == series
    assert texts(outcomes) == [series]


async def test_a_series_that_is_not_installed_is_one_clear_error_before_any_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = "3.13" if HERE != "3.13" else "3.12"
    for name in ("PATH", "HOME", "PYENV_ROOT"):
        monkeypatch.setenv(name, str(tmp_path))
    metadata = BundleMetadata(
        pip_dependencies=("six==99",), python_version=series, benchmax_version="0.2.5", env_class_source=None
    )
    cache = Cache(tmp_path / "cache")
    with pytest.raises(InterpreterNotFoundError) as caught:
        async with isolate(Artifact.of(Bundle(b"never opened", metadata)), cache=cache):
            pass
    assert series in str(caught.value)
    assert "looked at" in str(caught.value)
    assert not cache.venvs_dir.exists()
