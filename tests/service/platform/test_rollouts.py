"""Batches of the published client: what is uploaded is run, and each event arrives as the client reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.service.database import jobs, keys
from runner.service.database.database import Database
from runner.service.database.rows import JobRow
from tests.service.executor.held_model import HeldModel, held_model
from tests.service.executor.house import bundle_of
from tests.service.platform.platform_server import (
    Served,
    batch_of,
    serving,
    stream_batch,
    until,
    upload,
    upload_artifact,
    upload_rows,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STREAM = "/v1/rollout/batch/stream"
ROWS = [{"question": "What is 6 * 7?", "answer": 42}, {"question": "What is 7 * 7?", "answer": 49}]
READ = {
    "rollout_id", "success", "rewards", "termination_reason", "error", "contract_errors", "contract_warnings", "event",
}  # fmt: skip


def jobs_of(served: Served, tenant: str) -> list[JobRow]:
    database = Database.open(served.database_url)
    try:
        owner = next(row.tenant_id for row in database.read_now(keys.list_all) if row.tenant == tenant)
        return database.read_now(jobs.page, owner, kind="batch", limit=200)
    finally:
        database.close()


def test_a_batch_is_run_on_the_clients_own_files_and_told_as_the_client_reads_it(client: httpx.Client) -> None:
    env = upload_artifact(client, bundle_of("Asks"))
    prefix = upload_rows(client, "run", train=ROWS[1:], eval=ROWS[:1])
    events, lines = stream_batch(client, batch_of(env, dataset_path=prefix))
    assert [event["event"] for event in events] == [
        "batch_started", "rollout_completed", "rollout_completed", "batch_completed",
    ]  # fmt: skip
    assert events[0]["total"] == 2
    for rollout in events[1:3]:
        assert rollout.keys() == READ
        assert rollout["success"] is True
        assert all(math.isfinite(value) for value in rollout["rewards"].values())
        assert rollout["termination_reason"] == "finished"
        assert rollout["error"] is None
        assert (rollout["contract_errors"], rollout["contract_warnings"]) == ([], [])
    # the examples are those of the split's own file
    assert all("times-42" in rollout["rollout_id"] for rollout in events[1:3])
    assert len({rollout["rollout_id"] for rollout in events[1:3]}) == 2
    # nothing that the client takes for an event that it cannot read
    assert all(line == "" or line.startswith((":", "data: ")) for line in lines)


def test_an_environment_that_brings_its_own_data_needs_none(client: httpx.Client) -> None:
    body = batch_of(upload_artifact(client, bundle_of("Asks")), group_size=3)
    del body["max_context_tokens"]
    events, _ = stream_batch(client, body)
    assert [event["event"] for event in events].count("rollout_completed") == 3


def test_what_training_could_not_honour_comes_with_each_rollout(client: httpx.Client) -> None:
    events, _ = stream_batch(client, batch_of(upload_artifact(client, bundle_of("Samples"))))
    rollouts = [event for event in events if event["event"] == "rollout_completed"]
    assert len(rollouts) == 2
    for rollout in rollouts:
        assert [found["code"] for found in rollout["contract_errors"]] == ["trainer_owned_model_control"]
        assert rollout["contract_errors"][0].keys() >= {"code", "field", "message"}
        assert [found["code"] for found in rollout["contract_warnings"]] == ["harness_output_cap"]


def test_a_judge_at_the_services_own_address_is_asked_without_any_key(client: httpx.Client, served: Served) -> None:
    env = upload_artifact(client, bundle_of("Judged", url=f"{served.url}/v1"))
    events, _ = stream_batch(client, batch_of(env))
    rollouts = [event for event in events if event["event"] == "rollout_completed"]
    assert [rollout["error"] for rollout in rollouts] == [None, None]
    assert [rollout["rewards"]["judged"] for rollout in rollouts] == [1.0, 1.0]


def test_a_bundle_that_does_not_load_is_an_error_of_the_batch(client: httpx.Client) -> None:
    events, _ = stream_batch(client, batch_of(upload_artifact(client, bundle_of("Unloadable"))))
    assert [event["event"] for event in events] == ["batch_started", "worker_error"]
    assert "KeyError" in events[1]["error"]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"env": {"env_cls_path": "no/such", "env_metadata_path": "no/such"}}, 404, "no/such"),
        ({"dataset_path": "datasets/none/00000000"}, 404, "datasets/none"),
        ({"split": "test"}, 422, "split"),
        ({"group_size": 0}, 422, "group_size"),
        ({"group_size": 10_000}, 400, "group_size"),
        ({"max_context_tokens": 10_000_000}, 400, "max_context_tokens"),
        ({"max_examples": 2}, 422, "max_examples"),
        ({"model": {}}, 422, "model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    change: dict[str, Any], status: int, said: str, client: httpx.Client
) -> None:
    env = {
        "env_cls_path": upload(client, "refused/env-cls.pkl", b"x", "application/octet-stream"),
        "env_metadata_path": upload(client, "refused/env-metadata.json", b"{}", "application/json"),
    }
    answer = client.post(STREAM, json={**batch_of(env), **change})
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_files_of_another_tenant_are_not_there(client: httpx.Client, served: Served) -> None:
    env = upload_artifact(client, bundle_of("Asks"))
    with served.client(served.key(tenant="other")) as other:
        assert other.post(STREAM, json=batch_of(env)).status_code == 404


@pytest.mark.parametrize(
    ("scopes", "status"), [(None, 401), (["read", "models"], 403)], ids=["no key", "may not submit"]
)
def test_who_may_not_run_anything_is_told_so(scopes: list[str] | None, status: int, served: Served) -> None:
    env = {"env_cls_path": "a", "env_metadata_path": "b"}
    with served.client(None if scopes is None else served.key(scopes=scopes)) as client:
        answer = client.post(STREAM, json=batch_of(env))
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)


@pytest.fixture(scope="module")
def holding() -> Iterator[HeldModel]:
    """A model that answers when it is let."""
    with held_model() as model:
        yield model


@pytest.fixture(scope="module")
def slow(
    holding: HeldModel, served: Served, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service that has this model."""
    variables = {"MODEL_NAME": "m", "MODEL_BASE_URL": holding.base_url, "LIMITS_KEEP_ALIVE_S": "0.5"}
    with serving(tmp_path_factory.mktemp("slow"), shared_cache, variables) as service:
        yield service


@pytest.fixture
def held(holding: HeldModel) -> Iterator[HeldModel]:
    """The same, holding."""
    holding.hold()
    yield holding
    # whoever was asked answers, though nobody may be there any more
    holding.let.set()


def test_a_client_that_goes_away_has_its_batch_cancelled(slow: Served, held: HeldModel) -> None:
    with slow.client(slow.key(tenant="gone")) as client:
        body = batch_of(upload_artifact(client, bundle_of("Asks")))
        with client.stream("POST", STREAM, json=body) as answer:
            for line in answer.iter_lines():
                if "batch_started" in line:
                    assert held.asked.wait(60)
                    break
    until(lambda: [job.state for job in jobs_of(slow, "gone")] == ["cancelled"], what="the batch to be cancelled")


def test_a_batch_that_takes_long_is_kept_alive_by_lines_that_clients_ignore(slow: Served, held: HeldModel) -> None:
    with slow.client(slow.key()) as client:
        body = batch_of(upload_artifact(client, bundle_of("Asks")))
        events: list[dict[str, Any]] = []
        alive = 0
        with client.stream("POST", STREAM, json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                elif line.startswith(":"):
                    alive += 1
                    if events and alive > 1:
                        held.let.set()
        assert alive >= 2
        assert [event["event"] for event in events][-1] == "batch_completed"


def test_a_batch_that_somebody_cancels_ends_as_cancelled(slow: Served, held: HeldModel) -> None:
    with slow.client(slow.key(tenant="cancelling")) as client:
        body = batch_of(upload_artifact(client, bundle_of("Asks")))
        kinds = []
        with client.stream("POST", STREAM, json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    kinds.append(json.loads(line.removeprefix("data: "))["event"])
                if kinds == ["batch_started"]:
                    cancel_all(slow, "cancelling")
    assert kinds == ["batch_started", "cancelled"]


def cancel_all(served: Served, tenant: str) -> None:
    database = Database.open(served.database_url)
    try:
        for job in jobs_of(served, tenant):
            database.run_now(jobs.cancel, job.tenant_id, job.id)
    finally:
        database.close()
