"""A binding that is good at two servers gives each of them its own credential, whichever way its key is used."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from benchmax.auth import ModelRequestContext, StaticBearerAuth
from benchmax.envs import Example, RolloutRequest
from runner.broker import Broker
from runner.egress import Traffic
from runner.intermediary import Intermediary
from runner.limits import Limits
from runner.protocol import HeaderRequest
from runner.redaction import Redactor
from tests.unit.gateway_lab import Endpoint, endpoint

LIMITS = Limits()


class OneForEach:
    """Has another credential for each server, as a person with two accounts has."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    async def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[context.base_url]}"}


def asks(rollout_id: str, base_url: str) -> HeaderRequest:
    return HeaderRequest(
        request=0, call=0, binding="judge", rollout=rollout_id, base_url=base_url, model="j", rollout_id="judging"
    )


def shown_to(server: Endpoint) -> set[str]:
    return {asked.headers["authorization"] for asked in server.asked}


@pytest.mark.parametrize("own_path", [True, False])
async def test_each_server_sees_its_own_credential_alone(own_path: bool) -> None:
    source, redactor = OneForEach(), Redactor()
    async with endpoint() as one, endpoint() as other, httpx.AsyncClient(trust_env=False) as client:
        source.keys = {one.url: "key-of-the-first-1", other.url: "key-of-the-second-2"}
        broker = Broker({"judge": source}, redactor)
        gateway = Intermediary(
            broker, redactor, LIMITS, Traffic(lambda *_: None), place=None, intercepted=(), exchange=None
        )
        await gateway.start()
        requests: list[RolloutRequest[Any]] = [
            RolloutRequest(f"r{i}", Example("e", {}), "m", url, StaticBearerAuth("own"))
            for i, url in enumerate((one.url, other.url))
        ]
        async with gateway.rollouts(broker.scope(requests), None) as (lent, _):
            lent.enter()
            places = [request.base_url for request in lent.requests.values()]
            shown = set()
            for place in places:
                grant = lent.decide(asks("r0", place))
                shown.add((await grant.auth.headers_for_request(grant.context()))["Authorization"])
            (key,) = shown
            own = places[0].replace("/sessions/r0/", "/sessions/r0.judge/")
            for place in [own] if own_path else places:
                body = {"model": "j", "messages": [{"role": "user", "content": "Is it right?"}]}
                answer = await client.post(f"{place}/chat/completions", json=body, headers={"Authorization": key})
                assert answer.status_code == 200
            lent.leave()
        await gateway.aclose()
        assert shown_to(one) == {"Bearer key-of-the-first-1"}
        assert shown_to(other) == (set() if own_path else {"Bearer key-of-the-second-2"})
