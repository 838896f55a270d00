"""Calls with session keys in the place of credentials, without a worker: what a key is good for, and until when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from benchmax.auth import ModelRequestContext, StaticBearerAuth
from runner.broker import Binding, Broker
from runner.broker.address import read_address
from runner.errors import HeadersRefusedError
from runner.gateway.exchange import ModelCall, UpstreamError
from runner.gateway.gateway import Gateway
from runner.gateway.lending import Lender
from runner.gateway.lent_scope import LentScope
from runner.limits import Limits
from runner.protocol import Headers
from runner.redaction import Redactor
from tests.contract.loopback import ModelServer, error, running_server
from tests.unit.broker_lab import Source, bound, own, rollout

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Loan:
    """A lender over real HTTP, and a model's server."""

    def __init__(
        self,
        broker: Broker,
        lender: Lender,
        server: ModelServer,
        client: httpx.AsyncClient,
        told: list[tuple[str, str]],
    ) -> None:
        self.told = told
        self.broker = broker
        self.lender = lender
        self.server = server
        self._client = client

    def group(self, *ids: str, **options: Any) -> LentScope:
        """The scope of a call with rollouts, on which a worker works."""
        requests = [rollout(rollout_id, base_url=self.server.url, **options) for rollout_id in ids]
        scope = LentScope(self.lender, self.broker.scope(requests), "group")
        scope.enter()
        return scope

    def url(self, scope: LentScope, rollout_id: str) -> str:
        return str(scope.requests[rollout_id].base_url)

    def key(self, scope: LentScope, rollout_id: str) -> str:
        auth: Any = scope.requests[rollout_id].model_auth
        return str(auth.token)

    def bound_key(self, scope: LentScope, url: str, **changes: Any) -> str:
        auth: Any = scope.decide(bound(url, **changes)).auth
        return str(auth.token)

    async def post(self, url: str, key: str, **changes: Any) -> tuple[int, str | None]:
        """Ask for a completion; return the status, and the code of an error."""
        headers = {"Authorization": f"Bearer {key}"}
        answer = await self._client.post(f"{url}/chat/completions", json={**CHAT, **changes}, headers=headers)
        return answer.status_code, answer.json().get("error", {}).get("code")


Lent = Callable[..., AbstractAsyncContextManager[Loan]]


@pytest.fixture
def lent() -> Lent:
    @asynccontextmanager
    async def lent(auth: Mapping[str, Any] | None = None, *, intercepted: Any = None) -> AsyncIterator[Loan]:
        redactor, limits = Redactor(), Limits()
        told: list[tuple[str, str]] = []
        broker, gateway = Broker(auth, redactor), Gateway(limits, clean=redactor.clean)
        with running_server() as server:
            async with httpx.AsyncClient(trust_env=False) as client:
                lender = Lender(
                    gateway,
                    broker.clerk(limits),
                    limits,
                    origin=await gateway.listen(),
                    intercepted=intercepted,
                    exchange=None,
                    unreachable=lambda place, reason: told.append((place.origin, reason)),
                )
                try:
                    yield Loan(broker, lender, server, client, told)
                finally:
                    await lender.aclose()
                    await gateway.aclose()

    return lent


async def test_a_worker_is_given_a_key_and_the_server_the_credential(lent: Lent) -> None:
    async with lent() as loan:
        scope = loan.group("r1", "r2")
        assert {loan.url(scope, r).rpartition("/sessions/")[2] for r in ("r1", "r2")} == {"r1/v1", "r2/v1"}
        assert await loan.post(loan.url(scope, "r1"), loan.key(scope, "r1")) == (200, None)
        assert loan.server.requests[0].headers["authorization"] == "Bearer own-token"
        assert "own-token" not in f"{loan.key(scope, 'r1')}{loan.url(scope, 'r1')}"
        collected = await scope.collect()
    assert [(rollout_id, found.num_calls) for rollout_id, found in collected.items()] == [("r1", 1), ("r2", 0)]


async def test_what_is_handed_to_a_worker_is_no_credential_and_stays_out_of_the_audit(lent: Lent) -> None:
    async with lent() as loan:
        scope, sent = loan.group("r1"), list[Any]()
        desk = loan.broker.desk({1: scope}, Limits(), sent.append)
        desk.ask(own(base_url=loan.url(scope, "r1")))
        assert not loan.broker.audit
        desk.ask(own(base_url=loan.server.url))
        (entry,) = loan.broker.audit
        assert entry.verdict == "refused"
        assert isinstance(sent[0], Headers)
        assert sent[0].headers == {"Authorization": f"Bearer {loan.key(scope, 'r1')}"}


async def test_a_rollouts_key_ends_with_the_rollout_and_its_siblings_do_not(lent: Lent) -> None:
    async with lent() as loan:
        scope = loan.group("r1", "r2")
        scope.end("r1")
        assert await loan.post(loan.url(scope, "r1"), loan.key(scope, "r1")) == (401, "session_over")
        assert await loan.post(loan.url(scope, "r2"), loan.key(scope, "r2")) == (200, None)
        scope.leave()
        assert await loan.post(loan.url(scope, "r2"), loan.key(scope, "r2")) == (401, "session_over")
        # and nothing is asked for by whoever was under way
        with pytest.raises(HeadersRefusedError, match="is over"):
            scope.decide(own(base_url=loan.url(scope, "r1")))


async def test_keys_of_one_rollout_are_not_good_at_the_address_of_another(lent: Lent) -> None:
    async with lent() as loan:
        scope, other = loan.group("r1", "r2"), loan.group("r1")
        assert loan.url(other, "r1").endswith("/sessions/r1-2/v1")
        for url in (loan.url(scope, "r2"), loan.url(other, "r1")):
            assert await loan.post(url, loan.key(scope, "r1")) == (401, "invalid_session_key")
        assert loan.server.requests == []


async def test_a_request_that_cannot_be_asked_leaves_no_session_behind(lent: Lent) -> None:
    async with lent() as loan:
        requests = [rollout("r1", base_url=loan.server.url), rollout("r2", base_url="ftp://model.example")]
        with pytest.raises(ValueError, match="not a base URL"):
            LentScope(loan.lender, loan.broker.scope(requests), "group")
        assert loan.url(loan.group("r1"), "r1").endswith("/sessions/r1/v1")


async def test_a_server_that_cannot_be_reached_is_told_of_as_well_as_the_client(lent: Lent) -> None:
    async with lent() as loan:
        request = rollout("r1", base_url="http://127.0.0.1:9/v1")
        scope = LentScope(loan.lender, loan.broker.scope([request]), "group")
        scope.enter()
        status, code = await loan.post(loan.url(scope, "r1"), loan.key(scope, "r1"))
        assert (status, code) == (502, "upstream_unreachable")
        ((place, reason),) = loan.told
        assert place == "http://127.0.0.1:9"
        assert reason
        scope.leave()


# -- bindings -------------------------------------------------------------------------------------------------


async def test_each_rollout_has_a_session_of_its_own_for_a_binding_and_the_call_another(lent: Lent) -> None:
    async with lent({"judge": Source()}) as loan:
        scope = loan.group("r1", "r2")
        url = loan.url(scope, "r1")
        keys = [loan.bound_key(scope, url, rollout=rollout_id) for rollout_id in ("r1", "r2", None)]
        assert len({*keys, loan.key(scope, "r1")}) == 4
        assert loan.bound_key(scope, url, rollout="r1") == keys[0]
        with pytest.raises(HeadersRefusedError, match="no rollout 'r9' is in flight in this call"):
            loan.bound_key(scope, url, rollout="r9")
        # good at the addresses of all of the call's rollouts, which are what the binding covers
        for key in keys:
            assert await loan.post(loan.url(scope, "r2"), key) == (200, None)
    sent = [received.headers["authorization"] for received in loan.server.requests]
    assert sent == ["Bearer provided-token"] * 3


async def test_a_source_is_told_the_real_address_the_model_that_is_asked_and_the_label(lent: Lent) -> None:
    source = Source()
    async with lent({"judge": source}) as loan:
        scope = loan.group("r1")
        key = loan.bound_key(scope, loan.url(scope, "r1"))
        assert await loan.post(loan.url(scope, "r1"), key, model="other") == (200, None)
        assert source.asked == [ModelRequestContext(loan.server.url, "other", "label")]


async def test_a_query_has_no_part_in_where_a_call_goes(lent: Lent) -> None:
    source = Source()
    url = "http://127.0.0.1:9/v1"
    async with lent({"judge": Binding(source, urls=[url])}, intercepted=[read_address(url)]) as loan:
        scope = loan.group("r1")
        loan.bound_key(scope, url)
        (session,) = (bound_to.session for bound_to in scope._bound.values())
        call = ModelCall(
            session=session.id, rollout_id="r1", binding="judge", number=0, method="GET", route="files",
            url=f"{url}/files?name=\\caf\u00e9", headers={}, body=b"", document=None,
        )  # fmt: skip
        with pytest.raises(UpstreamError):
            await session.upstream.send(call)
        assert [context.base_url for context in source.asked] == [url]


async def test_a_binding_is_not_good_at_rollouts_that_it_does_not_cover(lent: Lent) -> None:
    url = "https://judge.example/v1"
    taken = [read_address("https://judge.example")]
    async with lent({"judge": Binding(Source(), urls=[url])}, intercepted=taken) as loan:
        scope = loan.group("r1")
        key = loan.bound_key(scope, url)
        assert await loan.post(loan.url(scope, "r1"), key) == (401, "invalid_session_key")
        with pytest.raises(HeadersRefusedError, match="does not cover"):
            loan.bound_key(scope, loan.url(scope, "r1"))
        assert loan.server.requests == []


async def test_a_binding_is_refused_where_the_gateway_is_not(lent: Lent) -> None:
    url = "https://judge.example/v1"
    binding = {"judge": Binding(Source(), urls=[url])}
    async with lent(binding) as loan:
        with pytest.raises(HeadersRefusedError, match="with network='model-only' alone"):
            loan.bound_key(loan.group("r1"), url)
    async with lent(binding, intercepted=[read_address("https://other.example")]) as loan:
        with pytest.raises(HeadersRefusedError, match="workers were started without it"):
            loan.bound_key(loan.group("r1"), url)
        with pytest.raises(HeadersRefusedError, match="No runtime model-auth provider"):
            loan.bound_key(loan.group("r1"), url, binding="nobody")


async def test_a_call_that_several_workers_do_again_has_keys_as_long_as_one_of_them_does(lent: Lent) -> None:
    """A dataset is made again in each fresh worker, with what it was made with first."""
    url = "http://judge.example/v1"
    async with lent({"judge": Binding(Source(), urls=[url])}, intercepted=[read_address(url)]) as loan:
        scope = LentScope(loan.lender, loan.broker.scope(), "create_dataset('eval')")
        with pytest.raises(HeadersRefusedError, match="outside of any call in flight"):
            loan.bound_key(scope, url)
        scope.enter()
        scope.enter()
        key = loan.bound_key(scope, url)
        scope.leave()
        assert loan.bound_key(scope, url) == key
        scope.leave()
        scope.enter()
        assert loan.bound_key(scope, url) != key
        scope.leave()


async def test_sources_of_different_rollouts_are_told_of_a_rejection_once(lent: Lent) -> None:
    class Renewing:
        number = 1
        told = 0

        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            return {"Authorization": f"Bearer renewed-{self.number}"}

        async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
            self.told += 1
            self.number += 1

    source = Renewing()
    async with lent() as loan:
        good = loan.server.answer

        def answer(received: Any) -> Any:
            return good(received) if received.headers["authorization"].endswith("-2") else error(401, "expired")

        loan.server.answer = answer
        for name in ("r1", "r2"):
            scope = loan.group(name, auth=source)
            # the second one's token was renewed by the first's rejection
            assert await loan.post(loan.url(scope, name), loan.key(scope, name)) == (200, None)
        assert source.told == 1
        scope = loan.group("r3", auth=StaticBearerAuth("stale"))
        assert await loan.post(loan.url(scope, "r3"), loan.key(scope, "r3")) == (401, "credential_failed")
