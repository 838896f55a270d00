"""Models that are asked with a key of the service: judges and embedders of environments that clients run themselves."""

from __future__ import annotations

import openai
import pytest

from tests.service.platform.platform_server import Served

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def usual(served: Served, secret: str) -> openai.OpenAI:
    """The usual client, at the service."""
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=secret, max_retries=0)


def test_chat_completions_pass_through_whole_and_streamed(usual: openai.OpenAI) -> None:
    with usual:
        whole = usual.chat.completions.create(model="judge", messages=[{"role": "user", "content": "What is 6 * 7?"}])
        assert whole.choices[0].message.content
        with usual.chat.completions.create(
            model="judge", messages=[{"role": "user", "content": "What is 6 * 7?"}], stream=True
        ) as stream:
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "".join(pieces)


def test_embeddings_pass_through_and_models_are_listed(usual: openai.OpenAI) -> None:
    with usual:
        found = usual.embeddings.create(model="embedder", input=["one", "two"])
        assert len(found.data) == 2
        assert [model.id for model in usual.models.list()] == ["mock"]


def test_who_may_not_ask_models_is_told_so_as_the_usual_client_reads_it(served: Served) -> None:
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.key(scopes=["submit"]), max_retries=0) as client,
        pytest.raises(openai.PermissionDeniedError, match="models"),
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="nobody", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_a_request_that_is_none_is_refused(served: Served, secret: str) -> None:
    with served.client(secret) as client:
        answer = client.post("/v1/chat/completions", content=b"[1]")
    assert answer.status_code == 400
    assert "JSON object" in answer.json()["error"]["message"]


def test_a_token_of_a_job_that_does_not_run_is_nobodys(served: Served) -> None:
    with served.client("bmj_job_aaaaaaaaaaaaaaaaaaaa." + "0" * 64) as client:
        answer = client.post("/v1/chat/completions", json={"model": "m", "messages": []})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unknown_token"
