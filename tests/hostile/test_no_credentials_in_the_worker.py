"""With the gateway no credential is in any process of a worker: not in memory, not in a variable, not in a file.

The search is made from outside, by a caller that is root, while rollouts run and after them; that it finds what is
there is shown by the session keys and the words of a prompt. The clients in the bundles know nothing of a gateway.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest
from runner import Binding, Limits, WorkerEvent, intermediary, isolate
from runner.gateway.authority import Authority
from runner.gateway.exchange import ModelCall, Upstream
from runner.isolated import IsolatedEnvironment
from runner.models import parse_model
from runner.models.server import serving
from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.sandbox import probe
from tests.conftest import require
from tests.contract.loopback import running_server
from tests.hostile.searching import files, spelled, topmost, tree
from tests.hostile.searching import places as found_places
from tests.integration.environments import mediated
from tests.integration.example_environment import EXAMPLES
from tests.integration.isolation import bundled, requests_for
from tests.integration.places import Places, certificate

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

JUDGE_URL = "https://judge.example:8443/v1"
SECRETS = {
    "model": "sentinel-model-Kq3xV9tLm2Rk8WbYpQ7",
    "judge": "sentinel-judge-Zd5uT1nHc4Fj6GsXoE0",
    "bystander": "sentinel-bystander-Ma7wB2yIv9Pl3CeNrU5",
}


class Searching:
    """An exchange that searches the worker while each of the first calls is under way: it has sent, and waits."""

    def __init__(self, most: int = 2) -> None:
        self.pid = 0
        self.root = 0
        self.searches = 0
        self.found: dict[str, set[str]] = {}
        self.controls: dict[str, bytes] = {}
        self.extra: dict[str, bytes] = {}
        self.authorities: list[Authority] = []
        self._most = most

    def on_event(self, event: Any) -> None:
        if isinstance(event, WorkerEvent) and event.state == "ready":
            self.root = topmost(event.pid)

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        return Looking(self, default)

    def finished(self, trace: Any) -> None:
        assert trace.status == 200, trace

    def search(self) -> None:
        """Look for every credential there is, and for what must be there."""
        needles = {f"{name}, {how}": text for name, secret in SECRETS.items() for how, text in spelled(secret).items()}
        for authority in self.authorities:
            number = authority._key.private_numbers().private_value
            needles |= {f"authority, {order}": number.to_bytes(32, order) for order in ("big", "little")}
        needles |= self.extra
        pids = tree(self.root)
        assert len(pids) > 1
        found = found_places(pids, {**needles, **self.controls})
        for name, where in files(pids, needles).items():
            found.setdefault(name, set()).update(where)
        # it would have been found
        assert self.controls.keys() <= found.keys(), found.keys()
        for name in needles:
            self.found.setdefault(name, set()).update(found.get(name, ()))
        self.searches += 1

    @property
    def leaks(self) -> dict[str, set[str]]:
        return {name: where for name, where in self.found.items() if where}


class Looking:
    """Searches, and then sends the call on."""

    def __init__(self, searching: Searching, upstream: Upstream) -> None:
        self._searching = searching
        self._upstream = upstream

    async def send(self, call: ModelCall) -> Any:
        if self._searching.searches < self._searching._most:
            self._searching.search()
        return await self._upstream.send(call)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Searching:
    require(os.geteuid() == 0, "root, who may read the memory of any process")
    blocker = probe.network_blocker()
    require(blocker is None, f"a network of its own ({blocker})")
    searching = Searching()

    class Known(Authority):
        def __init__(self) -> None:
            super().__init__()
            searching.authorities.append(self)

    monkeypatch.setattr(intermediary, "Authority", Known)
    # what the caller has for itself
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS["bystander"])
    return searching


@asynccontextmanager
async def environment(bundle: Any, cache: Cache, searching: Searching) -> AsyncIterator[IsolatedEnvironment]:
    """Isolate as strictly as can be, with nothing said about credentials."""
    judge = Binding(StaticBearerAuth(SECRETS["judge"]), urls=[JUDGE_URL])
    async with isolate(
        bundle,
        cache=cache,
        sandbox="namespaces",
        network="model-only",
        auth={"judge": judge},
        exchange=searching,
        on_event=searching.on_event,
        limits=Limits(rollout_s=240),
    ) as env:
        assert env.credentials == "gateway"
        yield env


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "class_name", "requirements"),
    [("calculator", "Calculator", []), ("reasoning", "Reasoning", ["sympy"])],
)
async def test_an_example_runs_against_a_real_model_and_its_worker_never_has_the_key(
    searching: Searching, shared_cache: Path, tmp_path: Path, name: str, class_name: str, requirements: list[str]
) -> None:
    cache = Cache(shared_cache)
    target = PackRequest(target=f"{EXAMPLES / name / name}.py:{class_name}", requirements=requirements)
    artifact = await pack(target, tmp_path / "artifact", cache=cache)
    auth = StaticBearerAuth(SECRETS["model"])
    async with (
        serving(parse_model("local", base_url=None), cache=cache, limits=Limits()) as model,
        environment(artifact, cache, searching) as env,
    ):
        dataset = await env.create_dataset("eval", EXAMPLES / name, max_examples=1)
        requests = [RolloutRequest(f"r-{k}", dataset[0], model.model, model.base_url, auth, "eval") for k in range(2)]
        # what the bundle's client is told is in the worker: its address of the gateway
        searching.controls = {"address": b"http://benchmax-gateway/sessions/r-0/v1"}
        outcomes = await env.run_group(requests)
        searching.search()
        answered = [entry.answered for entry in env.audit]
    assert {outcome.error for outcome in outcomes.values()} == {None}
    assert {outcome.termination_reason for outcome in outcomes.values()} <= env_reasons(name)
    assert all(answered)
    assert len(answered) >= 2
    assert searching.searches == 3
    assert searching.leaks == {}


def env_reasons(name: str) -> set[str]:
    """How rollouts of an example end with a small model: well, or after too many turns."""
    return {"finished", "max_turns_exceeded"} if name == "calculator" else {"finished"}


async def test_neither_has_one_that_asks_a_judge_over_tls(
    searching: Searching, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("openssl"), "openssl")
    authority, tls = certificate(tmp_path, "judge.example")
    # one file with both is how some people keep them
    with authority.open("ab") as file:
        file.write((tmp_path / "ca-key.pem").read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    searching.extra = {"key beside a certificate": (tmp_path / "ca-key.pem").read_bytes().splitlines()[1]}
    places = Places(monkeypatch)
    acts = ["ask", f"judge {JUDGE_URL}", "own_headers"]
    searching.controls = {"prompt": b"Which server is this?"}
    data = tmp_path / "data"
    data.mkdir()
    with running_server() as server:
        async with (
            places.model("judge.example", 8443, tls=tls) as judge,
            environment(bundled(mediated, "Mediated", acts=acts), Cache(shared_cache), searching) as env,
        ):
            dataset = await env.create_dataset("eval", data)
            auth = StaticBearerAuth(SECRETS["model"])
            said = []
            for example in dataset:
                (outcome,) = (await env.run_group(requests_for(example, auth=auth, base_url=server.url))).values()
                said.append(outcome.error)
            searching.search()
    assert said[:2] == ['"42"', '"judge.example"']
    # the servers had them
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRETS['model']}"
    assert judge.headers[0]["authorization"] == f"bearer {SECRETS['judge']}".lower()
    assert len(searching.authorities) == 1
    assert searching.searches == 3
    assert searching.leaks == {}


async def test_the_search_finds_a_credential_where_headers_are_handed_out(
    searching: Searching, shared_cache: Path, tmp_path: Path
) -> None:
    """The same search in the other mode, so that finding nothing above means something."""
    with running_server() as server:
        async with isolate(
            bundled(mediated, "Mediated", acts=["ask", "keep it"]),
            cache=Cache(shared_cache),
            sandbox="namespaces",
            on_event=searching.on_event,
        ) as env:
            dataset = await env.create_dataset("eval", tmp_path)
            for example in dataset:
                auth = StaticBearerAuth(SECRETS["model"])
                await env.run_group(requests_for(example, auth=auth, base_url=server.url))
            searching.search()
    assert "model, plain" in searching.leaks
