"""Headers for this process itself: as strictly as for a worker, with all in the audit; and rejections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from benchmax.auth import ModelRequestContext, StaticBearerAuth
from runner.broker import Binding, Broker, Clerk
from runner.errors import CredentialSourceError, HeaderLimitError, HeadersRefusedError
from runner.limits import Limits
from runner.redaction import Redactor
from tests.unit.broker_lab import JUDGE, Held, Source, bound, own, rollout, turns


class Own:
    """A broker, its clerk, and the scope of one call."""

    def __init__(self, source: Any, *, auth: Mapping[str, Any] | None = None, limits: Limits | None = None) -> None:
        self.redactor = Redactor()
        self.broker = Broker(auth, self.redactor)
        self.scope = self.broker.scope([rollout(auth=source)])
        self.clerk: Clerk = self.broker.clerk(limits or Limits())

    @property
    def audit(self) -> list[tuple[str | None, str, str]]:
        return [(entry.binding, entry.verdict, entry.reason) for entry in self.broker.audit]


async def test_what_is_covered_is_answered_and_noted_and_known_to_the_redactor() -> None:
    for source in (Source(), StaticBearerAuth("provided-token")):
        setting = Own(source)
        assert await setting.clerk.headers(setting.scope, own()) == {"Authorization": "Bearer provided-token"}
        assert setting.audit == [(None, "answered", "")]
        assert setting.redactor.clean("it is provided-token") == "it is [redacted]"


async def test_what_is_not_covered_raises_and_is_noted() -> None:
    source = Source()
    setting = Own(source, auth={"judge": Binding(source, urls=[JUDGE])})
    for request, text in [
        (own(base_url="https://evil.example/v1"), "runs against https://model.example/v1"),
        (own("other"), "no rollout 'other' is in flight"),
        (bound("https://evil.example"), "does not cover"),
        (bound(rollout="other"), "no rollout 'other' is in flight"),
    ]:
        with pytest.raises(HeadersRefusedError, match=text):
            await setting.clerk.headers(setting.scope, request)
    assert [verdict for _, verdict, _ in setting.audit] == ["refused"] * 4
    assert source.asked == []
    setting.scope.end("r1")
    with pytest.raises(HeadersRefusedError, match="is over"):
        await setting.clerk.headers(setting.scope, own())


async def test_a_rollout_that_asks_under_a_binding_is_told_apart_and_labelled_as_it_says() -> None:
    source = Source()
    setting = Own(source, auth={"judge": Binding(source, urls=[JUDGE])})
    await setting.clerk.headers(setting.scope, bound(rollout="r1"))
    assert source.asked == [ModelRequestContext(JUDGE, "judge-model", "label")]
    assert [entry.rollout_id for entry in setting.broker.audit] == ["label"]


async def test_more_often_than_the_limit_is_refused() -> None:
    setting = Own(Source(), limits=Limits(headers_per_rollout=2))
    for _ in range(2):
        await setting.clerk.headers(setting.scope, own())
    with pytest.raises(HeaderLimitError, match="headers_per_rollout"):
        await setting.clerk.headers(setting.scope, own())
    assert setting.audit[-1][1] == "limited"


async def test_a_source_that_fails_is_noted_with_its_words_and_raises_without_them() -> None:
    def fail() -> Any:
        raise LookupError("the vault is closed")

    setting = Own(Source(fail))
    with pytest.raises(CredentialSourceError, match="raised LookupError") as caught:
        await setting.clerk.headers(setting.scope, own())
    assert "vault" not in str(caught.value)
    assert "the vault is closed" in setting.audit[0][2]


async def test_everybody_who_waits_for_a_failure_gets_an_error_of_their_own() -> None:
    def fail() -> Any:
        raise LookupError

    source = Held(fail)
    setting = Own(source)
    waiting = [asyncio.ensure_future(setting.clerk.headers(setting.scope, own())) for _ in range(2)]
    await source.started.wait()
    source.go_on.set()
    one, other = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(one, CredentialSourceError)
    assert isinstance(other, CredentialSourceError)
    assert one is not other
    assert len(source.asked) == 1


async def test_a_source_nobody_waits_for_any_more_is_cancelled() -> None:
    source = Held()
    setting = Own(source)
    waiting = asyncio.ensure_future(setting.clerk.headers(setting.scope, own()))
    await source.started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await source.ended.wait()
    await setting.broker.aclose()


async def test_headers_that_come_after_their_rollout_has_ended_are_not_given() -> None:
    source = Held()
    setting = Own(source)
    waiting = asyncio.ensure_future(setting.clerk.headers(setting.scope, own()))
    await source.started.wait()
    setting.scope.end("r1")
    source.go_on.set()
    with pytest.raises(HeadersRefusedError, match="ended before"):
        await waiting


# -- rejections -----------------------------------------------------------------------------------------------


class Told(Source):
    """Remembers what was rejected."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
        self.told.append((context, dict(headers)))


HEADERS = {"Authorization": "Bearer provided-token"}


async def test_a_source_is_told_what_it_gave_for_which_request() -> None:
    source = Told()
    setting = Own(source)
    assert await setting.clerk.rejected(setting.scope, own(), HEADERS) is True
    assert source.told == [(ModelRequestContext("https://model.example/v1", "m", "r1"), HEADERS)]


@pytest.mark.parametrize("blocking", [False, True])
async def test_one_that_is_not_asynchronous_or_blocks_is_told_in_a_thread(blocking: bool) -> None:
    threads: list[str] = []

    class Plain(Source):
        def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
            threads.append(threading.current_thread().name)

    class Blocking(Source):
        async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
            threads.append(threading.current_thread().name)

    source = Blocking() if blocking else Plain()
    setting = Own(Source(), auth={"judge": Binding(source, urls=[JUDGE], blocking=blocking)})
    assert await setting.clerk.rejected(setting.scope, bound(), HEADERS) is True
    assert threads == ["benchmax-credentials"]


async def test_one_that_does_not_want_to_know_has_no_other_headers() -> None:
    for source in (Source(), StaticBearerAuth("provided-token")):
        setting = Own(source)
        assert await setting.clerk.rejected(setting.scope, own(), HEADERS) is False
        assert setting.audit == []


async def test_one_that_fails_or_takes_too_long_to_take_notice_has_failed() -> None:
    class Failing(Told):
        async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
            raise LookupError("the vault is closed")

    class Slow(Told):
        async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
            await asyncio.Event().wait()

    for source, text in [(Failing(), "the vault is closed"), (Slow(), "`rejected` did not end within 0.05 s")]:
        setting = Own(source, limits=Limits(headers_s=0.05))
        assert await setting.clerk.rejected(setting.scope, own(), HEADERS) is False
        ((_, verdict, reason),) = setting.audit
        assert verdict == "failed"
        assert text in reason
    await turns()


async def test_one_is_told_nothing_of_a_request_that_is_not_covered_any_more() -> None:
    source = Told()
    setting = Own(source)
    setting.scope.end("r1")
    assert await setting.clerk.rejected(setting.scope, own(), HEADERS) is False
    assert source.told == []
