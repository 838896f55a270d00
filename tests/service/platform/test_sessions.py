"""Model sessions of clients: opened with a key, used with the session's own, collected or discarded once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import httpx
import openai
import pytest

from tests.service.platform.platform_server import Served, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

QUESTION = [{"role": "user", "content": "What is 6 * 7?"}]


class SessionClient:
    """A session as the published client has it: base URL and key."""

    def __init__(self, llm_url: str, answer: httpx.Response) -> None:
        assert 200 <= answer.status_code < 300, answer.text
        opened = answer.json()
        assert isinstance(opened["session_key"], str)
        assert opened["session_key"]
        self.base_url = urljoin(f"{llm_url}/", opened["base_url"])
        assert not self.base_url.endswith("/")
        self.headers = {"Authorization": f"Bearer {opened['session_key']}"}
        self.key = opened["session_key"]

    def chat(self, **body: Any) -> httpx.Response:
        return self.ask("POST", "/chat/completions", json={"model": "m", "messages": QUESTION, **body})

    def collect(self) -> httpx.Response:
        return self.ask("POST", "/collect")

    def discard(self) -> httpx.Response:
        return self.ask("DELETE", "")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(method, self.base_url + path, headers=self.headers, timeout=60, trust_env=False, **more)


@pytest.fixture
def client(served: Served, secret: str) -> Iterator[httpx.Client]:
    """A client of the base URL for models, with a key."""
    with httpx.Client(
        base_url=f"{served.url}/v1", headers={"Authorization": f"Bearer {secret}"}, timeout=60, trust_env=False
    ) as client:
        yield client


def opened(client: httpx.Client, session_id: str | None = None, **more: Any) -> SessionClient:
    body = {"model": "m", "max_context_tokens": 2048, "ttl_seconds": 600, **more}
    answer = client.put(f"/sessions/{session_id or f'validate-{uuid.uuid4()}'}", json=body)
    return SessionClient(str(client.base_url).rstrip("/"), answer)


def test_a_session_tracks_its_calls_and_says_what_became_of_them(client: httpx.Client) -> None:
    session = opened(client)
    first = session.chat()
    assert first.status_code == 200
    message = first.json()["choices"][0]["message"]
    more = [*QUESTION, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "And 7 * 7?"}]
    assert session.chat(messages=more).status_code == 200
    collected = session.collect()
    assert collected.status_code == 200
    facts = collected.json()
    assert (facts["num_calls"], facts["contract_errors"], facts["contract_warnings"]) == (2, [], [])
    # that was its end
    assert session.chat().status_code == 401
    assert session.discard().status_code == 401


def test_what_training_could_not_honour_is_collected(client: httpx.Client) -> None:
    session = opened(client)
    assert session.chat(temperature=0.1, max_tokens=20).status_code == 200
    facts = session.collect().json()
    assert [found["code"] for found in facts["contract_errors"]] == ["trainer_owned_model_control"]
    assert [found["code"] for found in facts["contract_warnings"]] == ["harness_output_cap"]


def test_a_session_without_calls_says_so(client: httpx.Client) -> None:
    assert opened(client).collect().json()["num_calls"] == 0


def test_a_used_up_context_has_the_code_that_environments_wait_for(client: httpx.Client) -> None:
    session = opened(client, max_context_tokens=1)
    assert session.chat().status_code == 200
    refused = session.chat()
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == "context_budget_exceeded"


def test_a_discarded_session_is_gone(client: httpx.Client) -> None:
    session = opened(client)
    discarded = session.discard()
    assert 200 <= discarded.status_code < 300
    assert session.chat().json()["error"]["code"] == "session_over"


def test_a_session_ends_by_itself(client: httpx.Client) -> None:
    session = opened(client, ttl_seconds=0.3)
    until(lambda: session.ask("GET", "/models").status_code == 401, what="the session's end")


def test_answers_of_a_session_are_streamed_to_the_usual_client(client: httpx.Client) -> None:
    session = opened(client)
    with (
        openai.OpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as usual,
        usual.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "What is 6 * 7?"}], stream=True
        ) as stream,
    ):
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces)
    assert session.collect().json()["num_calls"] == 1


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": ""}, 400, "model"),
        ({"max_context_tokens": 0}, 400, "max_context_tokens"),
        ({"max_context_tokens": 10_000_000}, 400, "max_context_tokens"),
        ({"ttl_seconds": -1}, 400, "ttl_seconds"),
    ],
)
def test_what_cannot_be_meant_opens_nothing(
    change: dict[str, Any], status: int, param: str, client: httpx.Client
) -> None:
    body = {"model": "m", "max_context_tokens": 2048, "ttl_seconds": 600, **change}
    answer = client.put("/sessions/one", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_an_id_is_one_sessions(client: httpx.Client) -> None:
    session = opened(client, "taken")
    again = client.put("/sessions/taken", json={"model": "m", "max_context_tokens": 10, "ttl_seconds": 10})
    assert again.status_code == 409
    session.discard()
    opened(client, "taken").discard()


@pytest.mark.parametrize(
    ("scopes", "status"), [(None, 401), (["submit", "read"], 403)], ids=["no key", "may not ask models"]
)
def test_who_may_not_ask_models_opens_nothing(scopes: list[str] | None, status: int, served: Served) -> None:
    with served.client(None if scopes is None else served.key(scopes=scopes)) as client:
        answer = client.put("/v1/sessions/one", json={"model": "m", "max_context_tokens": 10, "ttl_seconds": 10})
    assert answer.status_code == status
    assert isinstance(answer.json()["error"]["message"], str)


def test_neither_a_key_of_the_service_nor_that_of_another_session_is_good_in_a_session(client: httpx.Client) -> None:
    first, second = opened(client), opened(client)
    url = f"{first.base_url}/chat/completions"
    for key in (second.key, client.headers["Authorization"].removeprefix("Bearer ")):
        answer = httpx.post(url, json={}, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False)
        assert answer.status_code == 401
    for session in (first, second):
        session.discard()


def test_a_key_has_so_many_sessions_and_no_more(served: Served) -> None:
    body = {"model": "m", "max_context_tokens": 10, "ttl_seconds": 600}
    with served.client(served.key(tenant="many")) as client:
        answers = [client.put(f"/v1/sessions/many-{number}", json=body) for number in range(65)]
        assert [answer.status_code for answer in answers] == [200] * 64 + [429]
        assert answers[-1].json()["error"]["code"] == "too_many_sessions"
        SessionClient(f"{served.url}/v1", answers[0]).discard()
        assert client.put("/v1/sessions/many-65", json=body).status_code == 200
