"""How often may be asked: generously, and no more. A denial names the limit; a worker that goes on is ended."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from runner import limits
from runner.broker import Binding
from runner.errors import CredentialSourceError, FrameError, HeaderLimitError, HeadersRefusedError
from runner.limits import HEADER_BURST_S, Limits
from runner.protocol import Headers, HeadersRefused
from runner.redaction import MIN_CHARS
from tests.unit.broker_lab import JUDGE, Held, Setting, Source, bound, judged, own, rollout


async def test_a_rollout_is_refused_beyond_its_limit_and_its_siblings_are_not() -> None:
    setting = Setting(requests=[rollout("r1"), rollout("r2")], limits=Limits(headers_per_rollout=3))
    for _ in range(3):
        await setting.headers(own("r1"))
    text = await setting.refusal(own("r1"))
    assert text == (
        "rollout 'r1' asked for headers more often than 3 times each. "
        "Raise limits.headers_per_rollout if that is meant."
    )
    answer = await setting.ask(own("r1"))
    assert isinstance(answer, HeadersRefused)
    assert answer.failure.type == "HeaderLimitError"
    assert setting.broker.audit[-1].verdict == "limited"
    assert await setting.headers(own("r2"))


async def test_the_bindings_of_a_call_have_the_limit_of_all_of_its_rollouts_together() -> None:
    setting = judged(JUDGE, requests=[rollout("r1"), rollout("r2")], limits=Limits(headers_per_rollout=2))
    for number in range(4):
        await setting.headers(bound(rollout_id=f"label-{number}"))
    assert "the rollouts of this call asked for headers" in await setting.refusal(bound())
    assert await setting.headers(own("r1"))
    # another call begins anew
    setting.scopes[2] = setting.broker.scope([rollout("r3")])
    assert await setting.headers(bound(call=2))


async def test_a_call_without_rollouts_may_embed_any_number_of_documents() -> None:
    setting = judged(JUDGE, limits=Limits(headers_per_rollout=2))
    setting.scopes[1] = setting.broker.scope()
    for _ in range(5):
        await setting.headers(bound())


async def test_requests_that_the_policy_refuses_count_as_well() -> None:
    setting = Setting(limits=Limits(headers_per_rollout=2))
    for _ in range(2):
        await setting.refusal(own(model="other"))
    assert "more often than 2 times" in await setting.refusal(own())


async def test_a_worker_is_held_to_its_rate_over_all_calls_and_may_go_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = Setting(limits=Limits(headers_per_s=2))
    setting.scopes[2] = setting.broker.scope([rollout("r9")])
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for number in range(2 * HEADER_BURST_S):
        assert await setting.headers(own("r9", call=2) if number % 2 else own())
    text = await setting.refusal(own())
    assert text == (
        "the worker asks for headers more often than 2 times per second. Raise limits.headers_per_s if that is meant."
    )
    now += 1
    answers = [await setting.ask(own()) for _ in range(4)]
    assert [type(answer) for answer in answers] == [Headers, Headers, HeadersRefused, HeadersRefused]


async def test_the_rate_of_one_worker_is_not_that_of_another() -> None:
    setting = Setting(limits=Limits(headers_per_s=1))
    for _ in range(HEADER_BURST_S):
        setting.desk.ask(own())
    assert isinstance(await setting.ask(own()), HeadersRefused)
    other: list[object] = []
    setting.broker.desk(setting.scopes, setting.limits, other.append).ask(own())
    assert isinstance(other[0], Headers)


async def test_a_worker_that_goes_on_after_a_great_many_denials_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.broker.desk.MAX_HEADER_DENIALS", 100)
    setting = Setting(limits=Limits(headers_per_rollout=1))
    setting.desk.ask(own())
    for _ in range(100):
        setting.desk.ask(own())
    with pytest.raises(FrameError, match="header requests were beyond a limit, and still it asks"):
        setting.desk.ask(own())


async def test_more_waiting_requests_than_anybody_needs_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.broker.desk.MAX_HEADER_REQUESTS", 100)
    source = Held()
    setting = Setting({"judge": Binding(source, urls=[JUDGE])})
    for number in range(100):
        setting.desk.ask(bound(rollout_id=str(number)))
    assert setting.desk.waiting == 100
    with pytest.raises(FrameError, match="more than 100 header requests at once"):
        setting.desk.ask(bound())
    setting.desk.close()
    await setting.broker.aclose()
    assert setting.sent == []


async def test_a_flood_of_ever_different_requests_leaves_nothing_more_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runner.broker.audit.AUDIT_ENTRIES", 100)
    monkeypatch.setattr("runner.broker.audit.AUDIT_PLACES", 100)
    setting = Setting({"judge": Binding(Source(), urls=[JUDGE])})

    def flood(start: int, stop: int) -> None:
        for number in range(start, stop):
            # another rollout, place and model each time, as long as they may be
            url = f"https://evil-{number}.example/{'x' * 500}"
            setting.desk.ask(own(rollout=f"{number}", base_url=url, model=f"{number}" * 20))
            setting.sent.clear()

    flood(0, 400)
    tracemalloc.start()
    try:
        flood(400, 800)
        before, _ = tracemalloc.get_traced_memory()
        flood(800, 2000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # an entry takes about 2 kB
    assert after - before < 100_000
    assert sum(entry.count for entry in setting.broker.audit_counts) == 2000


def test_the_page_on_credentials_quotes_the_limits_as_they_are() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "credentials.md").read_text("utf-8").split())
    defaults = Limits()
    for words in (
        f"| `headers_per_rollout` | {defaults.headers_per_rollout:,} |",
        f"| `headers_per_s` | {defaults.headers_per_s:,} per worker, in the long run |",
        f"refused; {limits.HEADER_BURST_S} seconds' worth may come at once",
        f"| `headers_s` | {defaults.headers_s:g} s |",
        f"| requests waiting at once | {limits.MAX_HEADER_REQUESTS:,} per worker |",
        f"| requests refused by a limit | {limits.MAX_HEADER_DENIALS:,} per worker |",
        f"at most {limits.PROVIDER_THREADS} at a time",
        f"more than {limits.MAX_HEADER_BYTES // limits.KIB} KiB",
        f"the newest {limits.AUDIT_ENTRIES:,} requests of each verdict",
        f"The {limits.REDACTED_VALUES:,} values that were handed out last are known",
        f"at most {2 * limits.REDACTED_VALUES:,}",
        f"the newest {limits.PARTIAL_VALUES:,} as they are",
        f"Values below {MIN_CHARS} characters are left",
        *(f"| `{kind.__name__}` |" for kind in (HeadersRefusedError, HeaderLimitError, CredentialSourceError)),
    ):
        assert words in page, words
