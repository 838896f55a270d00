"""The client with a real server: every call there is, and streams of a server that goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.service.client import KeyRefusedError, NotFoundError, ServiceClient, ServiceRefusedError
from runner.service.client.wire import ArtifactUploads, DataFile, NewKey, NewQuotas, NewValidation, Validation
from runner.validation import Verdict
from tests.service.http.servers import Execution, ServerProcess, Tenant

pytestmark = pytest.mark.integration


def client_of(tenant: Tenant, secret: str | None = None) -> ServiceClient:
    return ServiceClient(tenant.server.url, secret or tenant.secret)


async def submitted(client: ServiceClient, name: str = "mine") -> Validation:
    pickle, metadata, data = [await client.upload(f"x/{part}", part.encode()) for part in ("pickle", "meta", "data")]
    artifact = ArtifactUploads(pickle=pickle, metadata=metadata)
    return await client.submit(
        NewValidation(name=name, artifact=artifact, files=[DataFile(path="a/b.jsonl", upload=data)])
    )


async def test_a_validation_from_its_files_to_its_results(plain_tenant: Tenant, tmp_path: Path) -> None:
    verdict = Verdict(format=1, judgement="valid", rollouts=3)
    async with client_of(plain_tenant) as client:
        made = await submitted(client)
        assert (made.state, made.options.split) == ("queued", "eval")
        execution = Execution.of(plain_tenant.server, made.id)

        async def work() -> None:
            for number in range(50):
                await asyncio.to_thread(execution.tell, ("phase", {"phase": "count", "text": str(number)}))
            results = {"verdict": verdict.to_json(), "report": b"<html></html>", "logs": "grüße\n".encode()}
            await asyncio.to_thread(execution.end, results=results)

        working = asyncio.create_task(work())
        events = [event async for event in client.events(made.id)]
        await working
        assert [event.seq for event in events] == [*range(1, 52)]
        assert [event.data["text"] for event in events[:-1]] == [str(number) for number in range(50)]
        assert (events[-1].kind, events[-1].data["judgement"]) == ("end", "valid")
        assert [event async for event in client.events(made.id, after=51)] == []
        found = await client.validation(made.id)
        assert (found.state, found.judgement, found.has_report) == ("done", "valid", True)
        assert await client.verdict(made.id) == verdict
        assert await client.report(made.id) == b"<html></html>"
        assert await client.logs(made.id) == "grüße\n"
        page = await client.validations(judgement="valid", query="mine")
        assert [item.id for item in page.items] == [made.id]
        await client.delete(made.id)
        with pytest.raises(NotFoundError):
            await client.validation(made.id)


async def test_pages_of_validations_follow_each_other(plain_tenant: Tenant) -> None:
    async with client_of(plain_tenant) as client:
        made = [(await submitted(client, f"number {number}")).id for number in range(5)]
        seen: list[str] = []
        before = None
        while True:
            page = await client.validations(state="queued", before=before, limit=2)
            seen += [item.id for item in page.items]
            if (before := page.next) is None:
                break
    assert seen == made[::-1]


async def test_what_is_cancelled_ends_its_stream(plain_tenant: Tenant) -> None:
    async with client_of(plain_tenant) as client:
        made = await submitted(client)
        watching = asyncio.ensure_future(anext(client.events(made.id)))
        assert (await client.cancel(made.id)).state == "cancelled"
        assert (await client.cancel(made.id)).state == "cancelled"
        event = await watching
        assert (event.kind, event.data["state"]) == ("end", "cancelled")
        with pytest.raises(NotFoundError, match="no verdict"):
            await client.verdict(made.id)


async def test_a_verdict_that_is_not_there_yet_is_refused(plain_tenant: Tenant) -> None:
    async with client_of(plain_tenant) as client:
        made = await submitted(client)
        with pytest.raises(ServiceRefusedError, match="queued") as caught:
            await client.verdict(made.id)
    assert (caught.value.answer_code, caught.value.status) == ("not-over", 409)


async def test_keys_are_made_listed_and_revoked(plain_tenant: Tenant) -> None:
    async with client_of(plain_tenant) as client:
        made = await client.create_key(NewKey(name="ci", scopes=["read"], quotas=NewQuotas(max_jobs=2)))
        assert (made.scopes, made.quotas.max_jobs) == (["read"], 2)
        async with client_of(plain_tenant, made.secret) as theirs:
            me = await theirs.me()
            assert (me.key.name, me.tenant.name) == ("ci", plain_tenant.name)
            with pytest.raises(KeyRefusedError):
                await theirs.keys()
            assert made.id in [key.id for key in await client.keys()]
            assert (await client.revoke_key(made.id)).revoked_at is not None
            with pytest.raises(KeyRefusedError) as caught:
                await theirs.me()
        assert caught.value.request_id
        assert made.secret not in str(caught.value)
        told = [entry.action for entry in (await client.audit(limit=50)).items]
        assert "key.create" in told or "keys.create" in told


async def test_a_used_up_quota_is_told_in_the_services_words(plain_tenant: Tenant) -> None:
    small = plain_tenant.another(max_bytes=10)
    with small:
        async with client_of(small) as client:
            with pytest.raises(ServiceRefusedError, match="10") as caught:
                await client.upload("a", b"more than ten bytes")
    assert "quota" in caught.value.answer_code


async def test_a_server_says_whether_it_is_ready(plain_server: ServerProcess, plain_tenant: Tenant) -> None:
    async with client_of(plain_tenant) as client:
        assert (await client.ready()).status == "ready"


async def test_a_client_that_is_told_to_slow_down_does(strict_tenant: Tenant) -> None:
    told: list[str] = []
    with strict_tenant.another(requests_per_minute=60) as slow:
        async with ServiceClient(slow.server.url, slow.secret, on_trouble=told.append) as client:
            for _ in range(12):
                assert (await client.me()).key.id == slow.key_id
    assert told
