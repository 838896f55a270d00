"""What tests of environments behind the gateway share: one whose rollouts ask as they are told, and servers for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutOutcome
from runner import isolate
from runner.isolated import IsolatedEnvironment
from runner.provision import Cache
from runner.sandbox import probe
from tests.conftest import require
from tests.contract.loopback import ModelServer
from tests.integration.environments import mediated
from tests.integration.isolation import bundled, run_one
from tests.integration.places import Places, certificate

Acts = Callable[..., Any]
Opened = Callable[..., AbstractAsyncContextManager[tuple[IsolatedEnvironment, Acts]]]

MODEL, JUDGE = StaticBearerAuth("model-credential"), StaticBearerAuth("judge-credential")
JUDGE_URL = "https://judge.example:8443/v1"
BOTH = pytest.mark.parametrize("network", ["open", "model-only"])


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def opened(
        *acts: str, network: str = "model-only", arguments: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[IsolatedEnvironment, Acts]]:
        if network == "model-only":
            blocker = probe.network_blocker()
            require(blocker is None, f"a network of its own ({blocker})")
        bundle = bundled(mediated, "Mediated", acts=list(acts), **(arguments or {}))
        options = {"credentials": None if network == "model-only" else "gateway", **options}
        async with isolate(bundle, network=network, cache=Cache(shared_cache), **options) as env:
            dataset = await env.create_dataset("eval", tmp_path)

            async def run(act: str, **more: Any) -> RolloutOutcome:
                outcomes = await run_one(env, dataset, act, **{"auth": MODEL, **more})
                return next(iter(outcomes.values()))

            yield env, run

    return opened


@pytest.fixture
def judge_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places) -> Any:
    """A judge at an https origin, whose authority the caller trusts by its own variable."""
    require(shutil.which("openssl"), "openssl")
    authority, server = certificate(tmp_path, "judge.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    return lambda: places.model("judge.example", 8443, tls=server)


def said(outcome: RolloutOutcome) -> Any:
    assert outcome.error is not None, outcome
    return json.loads(outcome.error)


def credentials_at(server: ModelServer) -> list[str]:
    return [received.headers["authorization"] for received in server.requests]
