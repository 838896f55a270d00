"""Event streams of the client: every event once and in order, whatever happens to connections."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from runner.service.client import KeyRefusedError, ServiceClient, ServiceFaultError, ServiceUnreachableError
from runner.service.client import client as client_module
from runner.service.client.streams import Message, Pause, messages
from tests.service.client.scripted import CUT, answer, event, failure, scripted, stream

KEY = "bmx_key_sesame"
END = event(9, "end", state="done")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)


async def lines_of(text: str) -> AsyncIterator[str]:
    for line in text.splitlines():
        yield line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("id: 1\nevent: phase\ndata: {}\n\n", [Message(1, "phase", "{}")]),
        ("data:a\ndata: b\n\n", [Message(None, "message", "a\nb")]),
        (": alive\n\n\n: alive\n\n", []),
        ("retry: 1500\n\n", [Pause(1.5)]),
        ("retry: soon\nid: x\nunknown: y\ndata: z\n\n", [Message(None, "message", "z")]),
        ("id: 2\nevent: end\ndata: cut off", []),
        ("id: 3\n\ndata: z\n\n", [Message(None, "message", "z")]),
    ],
)
async def test_lines_become_messages(text: str, found: list[Message | Pause]) -> None:
    assert [item async for item in messages(lines_of(text))] == found


async def test_events_are_given_to_the_last() -> None:
    told = stream(": alive\n\n", event(1, text="a"), ": alive\n\n", event(2, "rollout"), END, event(10))
    async with scripted(told) as server, ServiceClient(server.url, KEY) as client:
        found = [item async for item in client.events("job_1")]
    assert [(item.seq, item.kind) for item in found] == [(1, "phase"), (2, "rollout"), (9, "end")]
    assert found[0].data == {"text": "a"}
    assert server.seen[0].target == "/api/v1/validations/job_1/events"
    assert "last-event-id" not in server.seen[0].headers


async def test_a_lost_stream_goes_on_where_it_was_and_nothing_comes_twice() -> None:
    told: list[str] = []
    parts = (
        stream(event(1), event(2), "id: 3\nevent: phase\nda"),
        CUT,
        failure(503, "busy"),
        stream("retry: 1\n\n"),
        answer(502, b"<html>"),
        # of a proxy that knows nothing of what was given
        stream(event(1), event(2), event(3), event(4)),
        failure(429, "too-many-streams"),
        stream(event(5), END),
    )
    async with scripted(*parts) as server, ServiceClient(server.url, KEY, on_trouble=told.append) as client:
        found = [item.seq async for item in client.events("job_1")]
    assert found == [1, 2, 3, 4, 5, 9]
    assert [seen.headers.get("last-event-id") for seen in server.seen] == [None, "2", "2", "2", "2", "2", "4", "4"]
    assert len(told) == 7
    assert told[0].endswith("going on after event 2")


async def test_a_stream_begins_after_what_was_seen() -> None:
    async with scripted(stream(event(7), event(8), END)) as server, ServiceClient(server.url, KEY) as client:
        assert [item.seq async for item in client.events("job_1", after=7)] == [8, 9]
    assert server.seen[0].headers["last-event-id"] == "7"


async def test_after_the_last_event_there_is_nothing() -> None:
    async with scripted(answer(204)) as server, ServiceClient(server.url, KEY) as client:
        assert [item async for item in client.events("job_1", after=9)] == []
    assert len(server.seen) == 1


async def test_a_stream_that_cannot_be_had_again_is_given_up() -> None:
    async with scripted(stream(event(1))) as server, ServiceClient(server.url, KEY, patience_s=0.05) as client:
        with pytest.raises(ServiceUnreachableError, match=r"events of job_1 at .* are lost: .* goes on there"):
            [item async for item in client.events("job_1")]
    assert len(server.seen) > 1


async def test_a_stream_that_always_ends_at_once_is_given_up_too() -> None:
    async with scripted(*[stream()] * 1000) as server, ServiceClient(server.url, KEY, patience_s=0.05) as client:
        with pytest.raises(ServiceUnreachableError):
            [item async for item in client.events("job_1")]
    assert len(server.seen) < 500


async def test_a_key_that_is_no_longer_good_ends_it() -> None:
    parts = (stream(event(1)), failure(401, "unauthorized", "the key was revoked."))
    async with scripted(*parts) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(KeyRefusedError, match="the key was revoked"):
            [item async for item in client.events("job_1")]


async def test_an_event_that_is_not_json_is_a_fault() -> None:
    told = stream("id: 1\nevent: phase\ndata: nonsense\n\n")
    async with scripted(told) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(ServiceFaultError, match="event 1 is not JSON"):
            [item async for item in client.events("job_1")]
