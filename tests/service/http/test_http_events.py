"""Event streams: nothing lost, nothing twice, whoever comes when, and however many they are."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from runner.service.database import keys
from runner.service.http.bounds import EVENT_ROWS, FEED_EVENTS
from tests.service.http.servers import PATIENCE_S, Execution, ServerProcess, Tenant, eventually

LOGS = [("log", {"text": f"line {number}"}) for number in range(20)]


class Reader:
    """One open stream, read message by message."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def message(self) -> dict[str, Any] | None:
        """The next message; `None` at the end. Comments are left out."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif not line and fields:
                data = json.loads(fields["data"]) if "data" in fields else None
                return {**fields, "data": data, "seq": int(fields.get("id", 0))}
        return None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (message := self.message()) is not None:
            yield message


def stream(tenant: Tenant, validation: str, **options: Any) -> Any:
    return tenant.http.stream("GET", f"/validations/{validation}/events", **options)


def test_a_stream_tells_what_has_happened_what_happens_and_the_end(tenant: Tenant) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    execution.tell(("phase", {"phase": "loading", "text": "it loads"}))
    with stream(tenant, validation) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-store"
        reader = Reader(answer)
        first = reader.message()
        assert first is not None
        assert (first["event"], first["seq"], first["data"]["text"]) == ("phase", 1, "it loads")
        execution.tell(("log", {"text": "two\nlines \u2028 and more"}))
        second = reader.message()
        assert second is not None
        assert (second["event"], second["seq"], second["data"]["text"]) == ("log", 2, "two\nlines \u2028 and more")
        execution.end()
        last = reader.message()
        assert last is not None
        assert (last["event"], last["seq"]) == ("end", 3)
        assert last["data"] == {"state": "done", "judgement": "valid", "error": None}
        assert reader.message() is None


def test_one_that_is_over_is_told_whole(tenant: Tenant) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    execution.tell(*LOGS)
    execution.end()
    with stream(tenant, validation) as answer:
        seen = [*Reader(answer)]
    assert [message["seq"] for message in seen] == [*range(1, 22)]
    assert seen[-1]["event"] == "end"


@pytest.mark.parametrize("by", ["header", "query"])
@pytest.mark.parametrize("after", [0, 1, 19, 20])
def test_a_stream_goes_on_where_the_last_one_broke_off(tenant: Tenant, by: str, after: int) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    execution.tell(*LOGS)
    execution.end()
    options = {"headers": {"Last-Event-ID": str(after)}} if by == "header" else {"params": {"after": after}}
    with stream(tenant, validation, **options) as answer:
        assert [message["seq"] for message in Reader(answer)] == [*range(after + 1, 22)]


def test_the_header_counts_for_more_than_the_query(tenant: Tenant) -> None:
    validation = tenant.validation()
    tenant.http.post(f"/validations/{validation}/cancel")
    with stream(tenant, validation, params={"after": 0}, headers={"Last-Event-ID": "1"}) as answer:
        assert answer.status_code == 204


def test_whoever_has_seen_the_end_is_told_not_to_come_back(tenant: Tenant) -> None:
    validation = tenant.validation()
    tenant.http.post(f"/validations/{validation}/cancel")
    for after in (1, 2, 1_000_000):
        assert tenant.http.get(f"/validations/{validation}/events", params={"after": after}).status_code == 204


def test_a_number_that_is_yet_to_come_loses_nothing(tenant: Tenant) -> None:
    validation = tenant.validation()
    with stream(tenant, validation, params={"after": 1_000}) as answer:
        Execution.of(tenant.server, validation).tell(("log", {"text": "first"}))
        message = Reader(answer).message()
        assert message is not None
        assert message["seq"] == 1


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "1" * 17])
def test_a_number_that_is_none_is_refused(plain_tenant: Tenant, value: str) -> None:
    validation = plain_tenant.validation()
    for options in ({"headers": {"Last-Event-ID": value}}, {"params": {"after": value}}):
        with stream(plain_tenant, validation, **options) as answer:
            assert answer.status_code == 422


def test_a_history_longer_than_what_is_held_is_told_whole(tenant: Tenant) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    many = 2 * (EVENT_ROWS + FEED_EVENTS)
    with stream(tenant, validation) as early:
        # comes in while one reads from the first, and more at once than one look fetches
        for _ in range(2):
            execution.tell(*[("log", {"text": "x" * 50})] * (many // 2))
        execution.end()
        with stream(tenant, validation) as late:
            assert [message["seq"] for message in Reader(late)] == [*range(1, many + 2)]
        assert [message["seq"] for message in Reader(early)] == [*range(1, many + 2)]


def test_readers_that_break_off_and_come_back_have_everything_once(tenant: Tenant) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    seen: list[int] = []
    numbers = itertools.cycle((1, 3, 2))
    told = 0
    while told < 60:
        execution.tell(*LOGS[:5])
        told += 5
        with stream(tenant, validation, headers={"Last-Event-ID": str(seen[-1] if seen else 0)}) as answer:
            reader = Reader(answer)
            for _ in range(next(numbers)):
                message = reader.message()
                assert message is not None
                seen.append(message["seq"])
    execution.end()
    with stream(tenant, validation, headers={"Last-Event-ID": str(seen[-1])}) as answer:
        seen += [message["seq"] for message in Reader(answer)]
    assert seen == [*range(1, 62)]


def test_a_stream_without_events_is_kept_alive(strict_tenant: Tenant) -> None:
    validation = strict_tenant.validation()
    with stream(strict_tenant, validation) as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(6)] == [": alive", ""] * 3


def test_a_stream_of_a_job_that_is_deleted_ends(tenant: Tenant) -> None:
    validation = tenant.validation()
    with stream(tenant, validation) as answer:
        tenant.http.post(f"/validations/{validation}/cancel")
        tenant.http.delete(f"/validations/{validation}")
        for message in Reader(answer):
            assert message["event"] == "end"


# -- many -----------------------------------------------------------------------------------------------------


async def follow(client: httpx.AsyncClient, tenant: Tenant, validation: str, opened: asyncio.Semaphore) -> list[int]:
    path = f"{tenant.server.url}/api/v1/validations/{validation}/events"
    seen = []
    async with client.stream("GET", path, headers={"Authorization": f"Bearer {tenant.secret}"}) as answer:
        assert answer.status_code == 200
        opened.release()
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                seen.append(int(line[4:]))
    return seen


async def test_two_hundred_streams_at_once_have_everything_once(plain_tenant: Tenant) -> None:
    server = plain_tenant.server
    validations = [plain_tenant.validation() for _ in range(10)]
    executions = [Execution.of(server, validation) for validation in validations]
    opened = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_S) as client:
        following = [
            asyncio.create_task(follow(client, plain_tenant, validation, opened))
            for validation in validations
            for _ in range(20)
        ]
        for _ in following:
            await opened.acquire()
        for _ in range(5):
            for execution in executions:
                await asyncio.to_thread(execution.tell, *LOGS)
        for execution in executions:
            await asyncio.to_thread(execution.end)
        everything = await asyncio.gather(*following)
    assert all(seen == [*range(1, 102)] for seen in everything)


def test_a_key_has_no_more_streams_than_it_may_have(strict_tenant: Tenant) -> None:
    validation = strict_tenant.validation()
    url = f"/validations/{validation}/events"
    with stream(strict_tenant, validation), stream(strict_tenant, validation), stream(strict_tenant, validation):
        answer = strict_tenant.http.get(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too-many-streams")
        with strict_tenant.server.tenant() as other:
            theirs = other.validation()
            with stream(other, theirs) as one, stream(other, theirs) as two:
                # all of them together may be no more than four
                assert (one.status_code, two.status_code) == (200, 503)
                assert two.headers["Retry-After"] == "2"

    def fits_again() -> bool:
        with stream(strict_tenant, validation) as answer:
            return bool(answer.status_code == 200)

    # the places are free again when the server has seen them go
    eventually(fits_again)


# -- slow and gone --------------------------------------------------------------------------------------------


def request_of(tenant: Tenant, validation: str) -> bytes:
    lines = (
        f"GET /api/v1/validations/{validation}/events HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {tenant.secret}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def of_stream(server: ServerProcess, validation: str) -> list[dict[str, Any]]:
    return [line for line in server.log() if line.get("path", "").endswith(f"{validation}/events")]


def test_a_client_that_does_not_read_is_cut_off_and_harms_nobody(hasty_tenant: Tenant) -> None:
    server = hasty_tenant.server
    validation = hasty_tenant.validation()
    execution = Execution.of(server, validation)
    with server.connected() as connection:
        connection.sendall(request_of(hasty_tenant, validation))
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
        # more than both kernels hold for somebody who does not read
        for _ in range(20):
            execution.tell(*[("log", {"text": "x" * 10_000})] * 100)
        eventually(lambda: of_stream(server, validation))
        assert of_stream(server, validation)[0]["aborted"]
    execution.end()
    with stream(hasty_tenant, validation, params={"after": 2_000}) as answer:
        assert [message["event"] for message in Reader(answer)] == ["end"]


def test_a_client_that_goes_is_noticed(tenant: Tenant) -> None:
    validation = tenant.validation()
    with stream(tenant, validation) as answer:
        assert answer.status_code == 200
    eventually(lambda: of_stream(tenant.server, validation))


def test_a_revoked_key_opens_no_more_streams(tenant: Tenant) -> None:
    validation = tenant.validation()
    with tenant.another() as brief:
        tenant.server.database.run_now(keys.revoke, brief.key_id)
        assert brief.http.get(f"/validations/{validation}/events").status_code == 401
