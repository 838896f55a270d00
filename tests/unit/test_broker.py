"""Who gets which headers: only what the caller meant for that call, rollout, model and URL; and a trail of it all."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, ModelAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from benchmax.envs.shared_types import Example, RolloutRequest
from runner.broker import AuditEntry, Binding, Broker, CallScope, origin
from runner.protocol import AuthToWorker, HeaderRequest, Headers, HeadersRefused, encode
from runner.redaction import Redactor

BASE = "https://model.example/v1"
JUDGE = "https://judge.example/v1"


class Provider:
    """A credential source that does what a test says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[], Any] = lambda: {"Authorization": "Bearer provided-token"}) -> None:
        self.answer = answer
        self.asked: list[ModelRequestContext] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.asked.append(context)
        return self.answer()  # type: ignore[no-any-return]  # tests return anything


def rollout(rollout_id: str = "r1", *, auth: ModelAuth | None = None, base_url: str = BASE, model: str = "m") -> Any:
    return RolloutRequest(
        rollout_id, Example("e", None), model, base_url, auth or StaticBearerAuth("own-token"), "eval"
    )


def own(**changes: Any) -> HeaderRequest:
    fields: dict[str, Any] = {
        "request": 7, "call": 1, "binding": None, "rollout": "r1", "base_url": BASE, "model": "m", "rollout_id": "r1",
    }  # fmt: skip
    return HeaderRequest(**{**fields, **changes})


def bound(url: str = JUDGE, **changes: Any) -> HeaderRequest:
    return own(binding="judge", rollout=None, base_url=url, model="judge-model", rollout_id="label", **changes)


class Setting:
    """A broker with one call in flight."""

    def __init__(self, auth: Mapping[str, Any] | None = None, requests: Sequence[Any] = ()) -> None:
        self.redactor = Redactor()
        self.broker = Broker(auth, self.redactor)
        self.scopes: dict[int, CallScope] = {1: self.broker.scope(requests or [rollout()])}

    async def ask(self, request: HeaderRequest) -> AuthToWorker:
        answer = await self.broker.answer(request, self.scopes)
        assert answer.request == request.request
        encode(answer)
        return answer

    async def headers(self, request: HeaderRequest) -> dict[str, str]:
        answer = await self.ask(request)
        assert isinstance(answer, Headers), answer
        return answer.headers

    async def refusal(self, request: HeaderRequest) -> str:
        answer = await self.ask(request)
        assert isinstance(answer, HeadersRefused), answer
        entry = self.broker.audit[-1]
        assert not entry.answered
        assert entry.reason == answer.failure.message
        return answer.failure.message


def judged(*urls: str, **options: Any) -> Setting:
    return Setting({"judge": Binding(Provider(), urls=urls)}, **options)


# -- a rollout's own auth -------------------------------------------------------------------------------------


async def test_a_rollouts_own_auth_is_answered_for_its_url_and_model() -> None:
    setting = Setting()
    assert await setting.headers(own()) == {"Authorization": "Bearer own-token"}
    assert await setting.headers(own(base_url=BASE + "/")) == {"Authorization": "Bearer own-token"}


async def test_the_provider_is_told_the_request_as_the_worker_makes_it() -> None:
    provider = Provider()
    setting = Setting(requests=[rollout(auth=provider)])
    await setting.headers(own(rollout_id="label"))
    assert provider.asked == [ModelRequestContext(BASE, "m", "label")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"call": 2}, "outside of any call in flight"),
        ({"call": 0}, "outside of any call in flight"),
        ({"rollout": "r2"}, "no rollout 'r2' is in flight"),
        ({"rollout": None}, "no rollout None is in flight"),
        ({"rollout": ""}, "no rollout '' is in flight"),
        ({"model": "other"}, "is for model 'm', not 'other'"),
        ({"base_url": "https://evil.example/v1"}, f"runs against {BASE}, not https://evil.example/v1"),
        ({"base_url": BASE + "/more"}, "runs against"),
        ({"base_url": BASE.upper()}, "runs against"),
        ({"base_url": ""}, "runs against"),
    ],
    ids=str,
)
async def test_a_rollouts_own_auth_is_refused_for_anything_else(changes: dict[str, Any], text: str) -> None:
    provider = Provider()
    setting = Setting(requests=[rollout(auth=provider)])
    assert text in await setting.refusal(own(**changes))
    assert provider.asked == []


async def test_each_rollout_has_its_own() -> None:
    setting = Setting(
        requests=[
            rollout("r1", auth=StaticBearerAuth("first-token")),
            rollout("r2", auth=StaticBearerAuth("second-token")),
        ]
    )
    assert await setting.headers(own(rollout="r2")) == {"Authorization": "Bearer second-token"}


async def test_nothing_is_answered_after_the_end_of_the_call() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    del setting.scopes[1]
    assert "outside of any call in flight" in await setting.refusal(own())
    assert "outside of any call in flight" in await setting.refusal(bound())


async def test_headers_that_come_after_the_end_of_the_call_are_not_handed_out() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Provider):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            asked.set()
            await go_on.wait()
            return {"Authorization": "Bearer too-late-token"}

    setting = Setting(requests=[rollout(auth=Slow())])
    task = asyncio.ensure_future(setting.ask(own()))
    await asked.wait()
    del setting.scopes[1]
    go_on.set()
    answer = await task
    assert isinstance(answer, HeadersRefused)
    assert "the call ended" in answer.failure.message
    assert setting.redactor.clean("too-late-token") == "too-late-token"


async def test_the_same_call_number_of_another_worker_is_another_call() -> None:
    setting = Setting()
    other = {1: setting.broker.scope([rollout("r9")])}
    answer = await setting.broker.answer(own(), other)
    assert isinstance(answer, HeadersRefused)


async def test_an_injected_auth_as_a_requests_own_resolves_in_the_callers_context() -> None:
    with bind_model_auth({"policy": StaticBearerAuth("policy-token")}):
        setting = Setting(requests=[rollout(auth=InjectedAuth("policy"))])
    assert await setting.headers(own()) == {"Authorization": "Bearer policy-token"}


# -- bindings -------------------------------------------------------------------------------------------------


async def test_a_binding_is_answered_for_the_urls_it_names() -> None:
    setting = judged("https://other.example", JUDGE)
    assert await setting.headers(bound()) == {"Authorization": "Bearer provided-token"}


async def test_a_binding_nobody_made_is_refused_with_the_words_of_injected_auth() -> None:
    assert "No runtime model-auth provider" in await Setting().refusal(bound())
    assert "'judge'" in await Setting().refusal(bound())


async def test_an_injected_auth_as_provider_is_refused_with_the_words_of_injected_auth() -> None:
    setting = Setting({"judge": Binding(InjectedAuth("judge"), urls=[JUDGE])})
    assert "cannot reference another InjectedAuth" in await setting.refusal(bound())


COVERED = [
    ("https://judge.example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1/"),
    ("https://judge.example/v1", "https://judge.example:443/v1"),
    ("https://judge.example:443/v1", "https://judge.example/v1"),
    ("http://judge.example", "http://judge.example:80/anything/at/all"),
    ("https://judge.example", "https://judge.example"),
    ("https://judge.example/", "https://judge.example/v1"),
    ("https://judge.example/v1/", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1/chat/completions"),
    ("https://judge.example/v1", "https://JUDGE.Example/v1"),
    ("HTTPS://Judge.Example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1?user=a@b&path=../.."),
    ("https://judge.example/v1", "https://judge.example/v1/..hidden/a..b/..."),
    ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ("http://[FE80::1]/v1", "http://[fe80::1]:80/v1"),
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
]
NOT_COVERED = [
    # origin
    ("https://judge.example/v1", "http://judge.example/v1"),
    ("http://judge.example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example:8443/v1"),
    ("https://judge.example:8443/v1", "https://judge.example/v1"),
    ("http://judge.example/v1", "http://judge.example:443/v1"),
    ("https://judge.example/v1", "https://evil.example/v1"),
    ("https://judge.example/v1", "https://judge.example.evil/v1"),
    ("https://judge.example/v1", "https://evil-judge.example/v1"),
    ("https://judge.example/v1", "https://a.judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example./v1"),
    ("http://[::1]:8000/v1", "http://[::2]:8000/v1"),
    ("http://[::1]:8000/v1", "http://localhost:8000/v1"),
    ("http://127.0.0.1:8000", "http://2130706433:8000"),
    # somebody else's host behind a user name
    ("http://judge.example", "http://judge.example@evil"),
    ("http://judge.example", "http://judge.example:80@evil"),
    ("https://judge.example/v1", "https://judge.example%2fv1@evil/v1"),
    ("https://judge.example/v1", "https://user:password@judge.example/v1"),
    ("https://judge.example/v1", "https://evil\\@judge.example/v1"),
    ("https://judge.example/v1", "https://evil#@judge.example/v1"),
    ("https://judge.example/v1", "https://evil?@judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example\\@evil/v1"),
    # characters that some readers drop
    ("https://judge.example/v1", "https://judge.exa\nmple/v1"),
    ("https://judge.example/v1", "\thttps://judge.example/v1"),
    ("https://judge.example/v1", " https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1\r\nHost: evil"),
    ("https://judge.example/v1", "https://judge.example/v1\0"),
    # path
    ("https://judge.example/v1", "https://judge.example"),
    ("https://judge.example/v1", "https://judge.example/"),
    ("https://judge.example/v1", "https://judge.example/v2"),
    ("https://judge.example/v1", "https://judge.example/v10"),
    ("https://judge.example/v1", "https://judge.example/V1"),
    ("https://judge.example/v1", "https://judge.example//v1"),
    ("https://judge.example/v1", "https://judge.example/v1/.."),
    ("https://judge.example/v1", "https://judge.example/v1/../admin"),
    ("https://judge.example/v1", "https://judge.example/v1/./x"),
    ("https://judge.example/v1", "https://judge.example/v1/%2e%2e/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%2E./admin"),
    ("https://judge.example/v1", "https://judge.example/v1/..%2fadmin"),
    ("https://judge.example/v1", "https://judge.example/v1/..%5Cadmin"),
    ("https://judge.example/v1", "https://judge.example/v1/..;a=b/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/..\\admin"),
    # no URL at all
    ("https://judge.example/v1", ""),
    ("https://judge.example/v1", "judge.example/v1"),
    ("https://judge.example/v1", "//judge.example/v1"),
    ("https://judge.example/v1", "https:///v1"),
    ("https://judge.example/v1", "https://judge.example:99999/v1"),
    ("https://judge.example/v1", "https://judge.example:port/v1"),
    ("https://judge.example/v1", "https://[judge.example/v1"),
    ("https://judge.example/v1", "https://judge\u2100.example/v1"),
]


@pytest.mark.parametrize(("urls", "wanted"), COVERED)
async def test_a_url_at_or_below_one_that_was_bound_is_covered(urls: str, wanted: str) -> None:
    assert await judged(urls).headers(bound(wanted))


@pytest.mark.parametrize(("urls", "wanted"), NOT_COVERED)
async def test_every_other_url_is_not_covered(urls: str, wanted: str) -> None:
    setting = judged(urls)
    assert "does not cover" in await setting.refusal(bound(wanted))


async def test_the_refusal_names_the_argument_and_the_option_to_add() -> None:
    text = await judged("https://other.example").refusal(bound())
    assert text == (
        "binding 'judge' does not cover https://judge.example/v1. If that is meant, pass "
        "auth={'judge': Binding(..., urls=['https://judge.example/v1'])} "
        "(command line: --auth judge=env:VARIABLE@https://judge.example/v1)."
    )


async def test_a_binding_without_urls_is_for_the_origins_of_the_calls_own_requests() -> None:
    setting = judged(requests=[rollout("r1"), rollout("r2", base_url="http://127.0.0.1:8000/v1")])
    assert await setting.headers(bound("https://model.example/other/path"))
    assert await setting.headers(bound("https://model.example:443"))
    assert await setting.headers(bound("http://127.0.0.1:8000"))
    assert "does not cover" in await setting.refusal(bound(JUDGE))
    assert "does not cover" in await setting.refusal(bound("http://model.example/v1"))
    assert "does not cover" in await setting.refusal(bound("https://x@model.example/v1"))


async def test_a_binding_without_urls_is_for_nothing_in_a_call_without_requests() -> None:
    setting = judged()
    setting.scopes[1] = setting.broker.scope()
    assert "does not cover" in await setting.refusal(bound(BASE))


async def test_a_request_whose_base_url_is_no_url_has_no_origin_to_cover() -> None:
    setting = judged(requests=[rollout(base_url="model.example:8000/v1")])
    assert "does not cover" in await setting.refusal(bound(JUDGE))


def test_urls_of_a_binding_may_be_one_string() -> None:
    assert Binding(Provider(), JUDGE).urls == (JUDGE,)


@pytest.mark.parametrize("url", ["judge.example/v1", "https://", "", "https://judge.example:port"])
def test_a_binding_with_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Binding(Provider(), [url])


def test_a_binding_with_urls_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="urls must be strings, got bytes"):
        Binding(Provider(), [b"https://judge.example"])  # type: ignore[list-item]  # the point


@pytest.mark.parametrize(
    ("auth", "kind", "text"),
    [
        ({"judge": "token"}, TypeError, "auth\\['judge'\\] must be a ModelAuth or a Binding, got str"),
        ({"judge": None}, TypeError, "got NoneType"),
        ({"": StaticBearerAuth("x")}, ValueError, "non-empty strings, got ''"),
        ({" ": StaticBearerAuth("x")}, ValueError, "non-empty strings"),
        ({1: StaticBearerAuth("x")}, ValueError, "non-empty strings, got 1"),
    ],
)
def test_auth_that_cannot_be_meant_is_refused_at_once(auth: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        Broker(auth, Redactor())


def test_a_binding_of_no_model_auth_is_refused() -> None:
    with pytest.raises(TypeError, match="must satisfy ModelAuth, got str"):
        Binding("token")  # type: ignore[arg-type]  # the point


def test_the_origin_of_a_url_has_its_default_port() -> None:
    assert origin("HTTPS://Judge.Example/v1") == ("https", "judge.example", 443)
    assert origin("http://[::1]/") == ("http", "::1", 80)
    assert origin("ftp://judge.example") == ("ftp", "judge.example", None)


# -- the caller's context -------------------------------------------------------------------------------------


async def test_an_active_bind_model_auth_replaces_the_auth_argument_whole() -> None:
    broker = Broker({"judge": StaticBearerAuth("argument-token"), "other": StaticBearerAuth("x")}, Redactor())
    with bind_model_auth({"judge": StaticBearerAuth("bound-token")}):
        scope = broker.scope([rollout()])
    assert scope.names() == ["judge"]
    answer = await broker.answer(bound(BASE), {1: scope})
    assert isinstance(answer, Headers)
    assert answer.headers == {"Authorization": "Bearer bound-token"}
    with bind_model_auth({}):
        assert broker.scope().names() == []
    assert broker.scope().names() == ["judge", "other"]


async def test_a_provider_sees_the_context_variables_of_whoever_made_the_call() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    setting = Setting(requests=[rollout(auth=Provider(lambda: {"X-Tenant": tenant.get()}))])
    tenant.set("somebody")
    assert await setting.headers(own()) == {"X-Tenant": "nobody"}
    setting.scopes[1] = setting.broker.scope([rollout(auth=Provider(lambda: {"X-Tenant": tenant.get()}))])
    tenant.set("somebody else")
    assert await setting.headers(own()) == {"X-Tenant": "somebody"}


async def test_providers_run_side_by_side() -> None:
    barrier = asyncio.Barrier(3)

    class Meeting(Provider):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            await barrier.wait()
            return {}

    setting = Setting(requests=[rollout(auth=Meeting())])
    await asyncio.gather(*(setting.headers(own(request=number)) for number in range(3)))


# -- providers that misbehave ---------------------------------------------------------------------------------


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (raising(RuntimeError("vault is sealed")), "RuntimeError", "credential source failed: vault is sealed"),
        (raising(KeyError("k")), "KeyError", "credential source failed: 'k'"),
        (raising(NoText()), "NoText", "RuntimeError while its text was asked for"),
        (raising(asyncio.CancelledError()), "CancelledError", "credential source was cancelled"),
        (lambda: None, "TypeError", "must return a mapping of str to str"),
        (lambda: "Bearer x", "TypeError", "must return a mapping of str to str"),
        (lambda: [("Authorization", "x")], "TypeError", "must return a mapping of str to str"),
        (lambda: {"Authorization": None}, "TypeError", "must return a mapping of str to str"),
        (lambda: {"Authorization": b"x"}, "TypeError", "must return a mapping of str to str"),
        (lambda: {1: "x"}, "TypeError", "must return a mapping of str to str"),
        (lambda: {"Authorization": "Bearer \udcff-secret"}, "ValueError", "characters that are not valid text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_provider_that_fails_is_a_refusal_that_says_so(answer: Callable[[], Any], kind: str, text: str) -> None:
    setting = Setting(requests=[rollout(auth=Provider(answer))])
    refused = await setting.ask(own())
    assert isinstance(refused, HeadersRefused)
    assert refused.failure.type == kind
    assert text in refused.failure.message
    assert "-secret" not in refused.failure.message
    assert not setting.broker.audit[-1].answered


class Synchronous:
    def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        return {"Authorization": "Bearer x"}


class NotCallable:
    headers_for_request = "Bearer x"


@pytest.mark.parametrize("auth", [Synchronous(), NotCallable()])
async def test_a_provider_whose_method_is_no_coroutine_is_a_refusal(auth: Any) -> None:
    setting = Setting(requests=[rollout(auth=auth)])
    assert "the caller's credential source failed" in await setting.refusal(own())


async def test_headers_of_str_subclasses_cross_as_plain_text() -> None:
    class Token(str):
        pass

    setting = Setting(requests=[rollout(auth=Provider(lambda: {Token("Authorization"): Token("Bearer abcdef")}))])
    headers = await setting.headers(own())
    assert {type(text) for pair in headers.items() for text in pair} == {str}


async def test_an_answer_that_is_cancelled_cancels_its_provider() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    class Endless(Provider):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return {}

    setting = Setting(requests=[rollout(auth=Endless())])
    task = asyncio.ensure_future(setting.ask(own()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()


# -- the trail ------------------------------------------------------------------------------------------------


async def test_every_answer_and_refusal_is_in_the_trail_in_order() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    await setting.refusal(own(model="other"))
    await setting.headers(bound())
    await setting.refusal(bound("https://evil.example"))
    trail = [(entry.binding, entry.rollout_id, entry.model, entry.answered) for entry in setting.broker.audit]
    assert trail == [
        (None, "r1", "m", True),
        (None, "r1", "other", False),
        ("judge", "label", "judge-model", True),
        ("judge", "label", "judge-model", False),
    ]
    assert [bool(entry.reason) for entry in setting.broker.audit] == [False, True, False, True]
    assert all(entry.at > 1.7e9 for entry in setting.broker.audit)


async def test_no_entry_of_the_trail_holds_a_value_whatever_the_worker_writes_into_its_requests() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    await setting.headers(bound())
    for secret in ("own-token", "provided-token"):
        await setting.ask(own(base_url=f"https://evil.example/{secret}"))
        await setting.ask(own(model=f"m-{secret}"))
        await setting.ask(own(rollout=secret))
        await setting.ask(own(binding=secret, rollout_id=secret))
        await setting.ask(own(call=9, rollout_id=secret, rollout=None))
    assert len(setting.broker.audit) == 12
    for entry in setting.broker.audit:
        assert "own-token" not in repr(entry)
        assert "provided-token" not in repr(entry)


async def test_a_refusal_repeats_no_value_to_the_worker_either() -> None:
    setting = Setting(requests=[rollout(auth=Provider(lambda: {"Authorization": "Bearer first-token"}))])
    await setting.headers(own())
    setting.scopes[1] = setting.broker.scope([rollout(auth=Provider(raising(RuntimeError("first-token expired"))))])
    assert await setting.refusal(own()) == "the caller's credential source failed: [redacted] expired"


async def test_every_value_that_is_handed_out_is_learned_for_redaction() -> None:
    provider = Provider(lambda: {"Authorization": "Bearer abc-token-1", "X-Key": "abc-key-2", "X-Short": "on"})
    setting = Setting(requests=[rollout(auth=provider)])
    assert setting.redactor.clean("abc-token-1 abc-key-2") == "abc-token-1 abc-key-2"
    await setting.headers(own())
    assert setting.redactor.clean("abc-token-1 abc-key-2 on") == "[redacted] [redacted] on"


async def test_a_long_reason_is_shortened() -> None:
    setting = Setting(requests=[rollout(auth=Provider(raising(RuntimeError("x" * 100_000))))])
    assert len(await setting.refusal(own())) <= 16 * 1024


def test_an_entry_has_no_field_for_a_value() -> None:
    assert set(AuditEntry.__slots__) == {"at", "binding", "rollout_id", "base_url", "model", "answered", "reason"}
