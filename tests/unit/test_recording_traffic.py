"""Model calls on their way into a record, and out of it again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.gateway.exchange import UpstreamError
from runner.recording.answering import Replayer
from runner.recording.journal import Journal, Lines
from runner.recording.octets import Octets
from runner.recording.traffic import RecordedCall, Recorder
from runner.report.replay import ReplayFinding
from tests.unit.recording_lab import Model, Said, asking, whole

SECRET = "sk-sentinel-4711"


def clean(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


class Tape:
    """A recorder, and replays of what it has recorded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path)
        self.recorder = Recorder(self.journal.append, attempt=1, clean=clean)
        self.findings: list[ReplayFinding] = []

    @property
    def calls(self) -> list[RecordedCall]:
        return list(Lines(self.path, RecordedCall))

    def replayer(self, attempts: Mapping[str, int] | None = None) -> Replayer:
        return Replayer(Lines(self.path, RecordedCall), attempts or {}, clean=clean, found=self.findings.append)

    async def record(self, *exchanges: tuple[str, Said | Exception], rollout: str = "r") -> None:
        upstream = self.recorder.upstream(rollout, None, Model(*(answer for _, answer in exchanges)))
        for number, (text, _) in enumerate(exchanges):
            try:
                await whole(await upstream.send(asking(number, text=text)))
            except UpstreamError:
                continue


@pytest.fixture
def tape(tmp_path: Path) -> Tape:
    return Tape(tmp_path / "calls.jsonl")


# -- recording ------------------------------------------------------------------------------------------------


async def test_a_call_is_kept_with_its_answer_as_it_came(tape: Tape) -> None:
    answer = Said(b'{"a"', b": 1}", status=201, headers=(("content-type", "application/json"), ("x-more", "yes")))
    upstream = tape.recorder.upstream("r", "judge", Model(answer))
    received = await upstream.send(asking(7))
    assert (received.status, await whole(received)) == (201, b'{"a": 1}')
    await received.aclose()
    assert answer.closed
    (call,) = tape.calls
    assert (call.rollout_id, call.binding, call.number, call.attempt) == ("r", "judge", 7, 1)
    assert (call.status, bytes(call.answer), call.cut) == (201, b'{"a": 1}', False)
    assert ("x-more", "yes") in call.headers
    assert bytes(call.request) == asking().body


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(tape: Tape) -> None:
    broken = UpstreamError("it closed midway", code="upstream_closed", status=502, retry=True)
    await tape.record(("a", Said(b"half", error=broken)), ("b", UpstreamError("gone", code="upstream_unreachable")))
    first, second = tape.calls
    assert (bytes(first.answer), first.failure is not None and first.failure.code) == (b"half", "upstream_closed")
    assert (second.status, second.failure is not None and second.failure.code) == (0, "upstream_unreachable")


async def test_a_client_that_goes_leaves_a_call_that_is_cut(tape: Tape) -> None:
    upstream = tape.recorder.upstream("r", None, Model(Said(b"one", b"two")))
    answer = await upstream.send(asking())
    body = answer.body()
    assert await anext(aiter(body)) == b"one"
    await answer.aclose()
    (call,) = tape.calls
    assert (bytes(call.answer), call.cut) == (b"one", True)


async def test_calls_of_a_rollout_are_kept_before_its_outcome_and_once(tape: Tape) -> None:
    upstream = tape.recorder.upstream("r", None, Model(Said(b"data: [DONE]\n\n", b"rest")))
    other = tape.recorder.upstream("r2", None, Model(Said(b"x")))
    answer, open_still = await upstream.send(asking()), await other.send(asking())
    body = aiter(answer.body())
    await anext(body)
    tape.recorder.settle("r")
    assert [(call.rollout_id, call.cut) for call in tape.calls] == [("r", True)]
    await answer.aclose()
    await open_still.aclose()
    assert [call.rollout_id for call in tape.calls] == ["r", "r2"]


async def test_no_secret_gets_into_a_record(tape: Tape) -> None:
    # wherever a server, a client or a bundle may put one
    error = UpstreamError(f"no use of {SECRET}", code="c")
    said = Said(f'{{"key": "{SECRET}"}}'.encode(), headers=(("x-echo", SECRET),))
    await tape.record((f"my key is {SECRET}", said), ("b", error), ("c", Said(b"\xff" + SECRET.encode())))
    address = f"https://judge.example/v1/chat/completions?key={SECRET}"
    await tape.recorder.upstream("r", "judge", Model(Said(b""))).send(asking(url=address))
    tape.recorder.settle("r")
    assert len(tape.calls) == 4
    assert SECRET.encode() not in tape.path.read_bytes()


@pytest.mark.parametrize(
    "data", [b"", b"text \xe2\x82\xac \0 \x1b[0m", b"\xff\xfe\x80", b"\xed\xa0\x80", bytes(range(256))]
)
def test_bytes_of_any_kind_come_back(data: bytes) -> None:
    assert bytes(Octets.of(data, clean)) == data


# -- replaying ------------------------------------------------------------------------------------------------


async def test_recorded_answers_come_back_byte_for_byte(tape: Tape) -> None:
    stream = Said(b"data: 1\n\n", b"data: [DONE]\n\n", headers=(("content-type", "text/event-stream"),))
    limited = Said(b"{}", status=429, headers=(("retry-after", "1"),))
    await tape.record(("a", limited), ("a", stream))
    replayer = tape.replayer()
    upstream = replayer.upstream("r", None, Model())
    first, second = await upstream.send(asking(0, text="a")), await upstream.send(asking(1, text="a"))
    assert (first.status, list(first.headers)) == (429, [("retry-after", "1")])
    assert await whole(second) == b"data: 1\n\ndata: [DONE]\n\n"
    await second.aclose()
    assert (tape.findings, replayer.unused) == ([], 0)


async def test_failures_come_back_as_they_were(tape: Tape) -> None:
    broken = UpstreamError("it closed midway", code="upstream_closed", status=502, retry=True)
    await tape.record(
        ("a", Said(b"half", error=broken)), ("b", UpstreamError("no", code="upstream_timeout", status=504))
    )
    upstream = tape.replayer().upstream("r", None, Model())
    answer = await upstream.send(asking(0, text="a"))
    with pytest.raises(UpstreamError, match="midway") as caught:
        await whole(answer)
    assert (caught.value.code, caught.value.retry) == ("upstream_closed", True)
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(asking(1, text="b"))
    assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)


async def test_a_call_that_nobody_waited_for_is_waited_for_again(tape: Tape) -> None:
    upstream = tape.recorder.upstream("r", None, Model(Said(b"one", b"two")))
    await anext(aiter((await upstream.send(asking())).body()))
    tape.recorder.settle("r")
    body = aiter((await tape.replayer().upstream("r", None, Model()).send(asking())).body())
    assert await anext(body) == b"one"
    more = asyncio.ensure_future(anext(body))
    await asyncio.wait([more], timeout=0.01)
    assert not more.done()
    more.cancel()


async def test_calls_made_at_once_may_come_in_another_order(tape: Tape) -> None:
    await tape.record(*((text, Said(text.encode())) for text in ("a", "b", "c")))
    upstream = tape.replayer().upstream("r", None, Model())
    answers = [await whole(await upstream.send(asking(number, text=text))) for number, text in enumerate("cab")]
    assert answers == [b"c", b"a", b"b"]
    assert tape.findings == []


async def test_equal_requests_get_their_answers_in_order(tape: Tape) -> None:
    await tape.record(*(("same", Said(b"%d" % number)) for number in range(3)))
    upstream = tape.replayer().upstream("r", None, Model())
    assert [await whole(await upstream.send(asking(n, text="same"))) for n in range(3)] == [b"0", b"1", b"2"]


async def test_a_retry_is_answered_after_what_it_repeats_whatever_else_came_between(tape: Tape) -> None:
    refused = Said(b"{}", status=429)
    await tape.record(("a", refused), ("b", Said(b"{}", status=429)), ("b", Said(b"b")), ("a", Said(b"a")))
    upstream = tape.replayer().upstream("r", None, Model())
    statuses = [(await upstream.send(asking(number, text=text))).status for number, text in enumerate("baab")]
    assert statuses == [429, 429, 200, 200]


async def test_a_request_that_differs_is_told_where(tape: Tape) -> None:
    await tape.record(("hello", Said(b"1")), ("more", Said(b"2")))
    upstream = tape.replayer().upstream("r", None, Model())
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(asking(0, text="hullo"))
    assert (caught.value.code, caught.value.status, caught.value.retry) == ("replay_mismatch", 400, False)
    assert 'at $.messages[0].content: recorded "hello", now "hullo"' in caught.value.message
    (finding,) = tape.findings
    assert (finding.code, finding.rollout_id, finding.number, finding.path) == (
        "replay_mismatch", "r", 0, "$.messages[0].content",
    )  # fmt: skip
    # and what was recorded can still be asked
    assert await whole(await upstream.send(asking(1, text="hello"))) == b"1"


async def test_another_route_or_address_is_a_difference_too(tape: Tape) -> None:
    await tape.recorder.upstream("r", "judge", Model(Said(b""))).send(asking(url="https://a.example/v1/x"))
    tape.recorder.settle("r")
    with pytest.raises(UpstreamError, match=r"under the binding judge differs .* at address: recorded .*a\.example"):
        await (
            tape.replayer().upstream("r", "judge", Model()).send(asking(binding="judge", url="https://b.example/v1/x"))
        )


async def test_the_models_own_server_may_be_at_another_port(tape: Tape) -> None:
    tape.recorder.base_url = "http://127.0.0.1:4000/v1"
    upstream = tape.recorder.upstream("r", "judge", Model(Said(b"yes")))
    await whole(await upstream.send(asking(url="http://127.0.0.1:4000/v1/chat/completions")))
    replayer = tape.replayer()
    replayer.base_url = "http://127.0.0.1:5000/v1/"
    answer = await replayer.upstream("r", "judge", Model()).send(
        asking(binding="judge", url="http://127.0.0.1:5000/v1/chat/completions")
    )
    assert await whole(answer) == b"yes"


async def test_a_call_beyond_the_recorded_ones_is_missing(tape: Tape) -> None:
    await tape.record(("a", Said(b"1")))
    replayer = tape.replayer()
    for rollout, number in (("r", 0), ("r", 1), ("unknown", 0)):
        if (rollout, number) == ("r", 0):
            await replayer.upstream("r", None, Model()).send(asking(0, text="a"))
            continue
        with pytest.raises(UpstreamError, match="is not in the record") as caught:
            await replayer.upstream(rollout, None, Model()).send(asking(number, text="a"))
        assert (caught.value.code, caught.value.retry) == ("replay_missing", False)
    assert [finding.rollout_id for finding in tape.findings] == ["r", "unknown"]


async def test_a_secret_in_a_request_is_none_in_the_comparison(tape: Tape) -> None:
    # the one that a replay has in its place is taken out likewise
    await tape.record((f"key {SECRET}", Said(b"1")))
    answer = await tape.replayer().upstream("r", None, Model()).send(asking(0, text=f"key {SECRET}"))
    assert await whole(answer) == b"1"


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"\xff\x00", b'{"a": NaN, "b": "\\ud800"}', b"[" * 2000 + b"]" * 2000]
)
async def test_bodies_of_any_kind_are_compared(tape: Tape, body: bytes) -> None:
    upstream = tape.recorder.upstream("r", None, Model(Said(b"1")))
    await whole(await upstream.send(asking(body=body)))
    replay = tape.replayer().upstream("r", None, Model())
    with pytest.raises(UpstreamError, match="differs"):
        await replay.send(asking(body=b'"another"'))
    assert await whole(await replay.send(asking(body=body))) == b"1"


async def test_members_may_stand_in_another_order(tape: Tape) -> None:
    upstream = tape.recorder.upstream("r", None, Model(Said(b"1")))
    await whole(await upstream.send(asking(body=b'{"a": 1, "b": [1.0]}')))
    answer = await tape.replayer().upstream("r", None, Model()).send(asking(body=b'{"b": [1], "a": 1}'))
    assert await whole(answer) == b"1"


async def test_only_the_attempt_counts_that_the_outcome_is_of(tape: Tape) -> None:
    for attempt in (1, 2):
        tape.recorder = Recorder(tape.journal.append, attempt=attempt, clean=clean)
        for rollout in ("r", "group r", "constructor"):
            await tape.record(("a", Said(b"%d" % attempt)), rollout=rollout)
    replayer = tape.replayer({"r": 2})
    for rollout in ("r", "group r"):
        assert await whole(await replayer.upstream(rollout, None, Model()).send(asking(0, text="a"))) == b"2"
    # what is no rollout's may be asked as often as in all attempts
    constructor = replayer.upstream("constructor", None, Model())
    assert [await whole(await constructor.send(asking(0, text="a"))) for _ in range(2)] == [b"1", b"2"]
    assert replayer.unused == 0
