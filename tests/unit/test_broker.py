"""Who gets which headers: only what the caller meant for that call, rollout, model and URL."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from runner.broker import Binding, Broker
from runner.errors import HeadersRefusedError
from runner.protocol import Headers, HeadersRefused
from runner.redaction import Redactor
from tests.unit.broker_lab import BASE, JUDGE, Held, Setting, Source, bound, judged, own, rollout

# -- a rollout's own auth -------------------------------------------------------------------------------------


async def test_a_rollouts_own_auth_is_answered_for_its_url_and_model() -> None:
    setting = Setting()
    assert await setting.headers(own()) == {"Authorization": "Bearer own-token"}
    assert await setting.headers(own(base_url=BASE + "/")) == {"Authorization": "Bearer own-token"}


async def test_the_source_of_a_rollouts_own_auth_is_told_of_the_request_in_the_callers_words() -> None:
    source = Source()
    setting = Setting(requests=[rollout(auth=source)])
    await setting.headers(own(rollout_id="r2", base_url=BASE + "/"))
    assert source.asked == [ModelRequestContext(BASE, "m", "r1")]


async def test_the_source_of_a_binding_is_told_the_label_that_the_bundle_gave() -> None:
    source = Source()
    setting = Setting({"judge": Binding(source, urls=[JUDGE])})
    await setting.headers(bound(JUDGE + "/more", rollout_id="rag-embedding"))
    assert source.asked == [ModelRequestContext(JUDGE + "/more", "judge-model", "rag-embedding")]


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
    source = Source()
    setting = Setting(requests=[rollout(auth=source)])
    assert text in await setting.refusal(own(**changes))
    assert source.asked == []


async def test_each_rollout_has_its_own() -> None:
    setting = Setting(
        requests=[
            rollout("r1", auth=StaticBearerAuth("first-token")),
            rollout("r2", auth=StaticBearerAuth("second-token")),
        ]
    )
    assert await setting.headers(own("r2")) == {"Authorization": "Bearer second-token"}


async def test_nothing_is_answered_after_the_end_of_the_call() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    del setting.scopes[1]
    assert "outside of any call in flight" in await setting.refusal(own())
    assert "outside of any call in flight" in await setting.refusal(bound())


async def test_a_rollout_that_is_over_gets_nothing_while_its_siblings_and_the_bindings_go_on() -> None:
    setting = judged(JUDGE, requests=[rollout("r1"), rollout("r2")])
    setting.scopes[1].end("r1")
    assert "rollout 'r1' is over" in await setting.refusal(own("r1"))
    assert await setting.headers(own("r2"))
    assert await setting.headers(bound())


@pytest.mark.parametrize("end", ["call", "rollout"])
async def test_headers_that_come_after_the_end_are_not_handed_out(end: str) -> None:
    source = Held(lambda: {"Authorization": "Bearer too-late-token"})
    setting = Setting(requests=[rollout(auth=source)])
    asked = setting.begin(own())
    await source.started.wait()
    if end == "call":
        del setting.scopes[1]
    else:
        setting.scopes[1].end("r1")
    source.go_on.set()
    answer = await asked
    assert isinstance(answer, HeadersRefused)
    assert "ended before its headers were there" in answer.failure.message
    assert setting.redactor.clean("too-late-token") == "too-late-token"


async def test_the_same_call_number_of_another_worker_is_another_call() -> None:
    setting = Setting()
    other: list[Any] = []
    desk = setting.broker.desk({1: setting.broker.scope([rollout("r9")])}, setting.limits, other.append)
    desk.ask(own())
    assert isinstance(other[0], HeadersRefused)
    assert setting.sent == []


# -- a rollout's own auth by name -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["argument", "bind_model_auth"])
async def test_an_injected_auth_as_a_requests_own_resolves_to_what_the_caller_bound(how: str) -> None:
    bound_auth = {"policy": StaticBearerAuth("policy-token")}
    requests = [rollout(auth=InjectedAuth("policy"))]
    if how == "argument":
        setting = Setting(bound_auth, requests)
    else:
        with bind_model_auth(bound_auth):
            setting = Setting({"policy": StaticBearerAuth("replaced-token")}, requests)
    assert await setting.headers(own()) == {"Authorization": "Bearer policy-token"}


async def test_an_injected_auth_as_a_requests_own_that_nobody_bound_is_refused_in_its_own_words() -> None:
    setting = Setting(requests=[rollout(auth=InjectedAuth("policy"))])
    text = await setting.refusal(own())
    assert "No runtime model-auth provider" in text
    assert "'policy'" in text


async def test_an_injected_auth_that_stands_for_another_is_refused_in_its_own_words() -> None:
    setting = Setting({"policy": InjectedAuth("policy")}, [rollout(auth=InjectedAuth("policy"))])
    assert "cannot reference another InjectedAuth" in await setting.refusal(own())


async def test_the_urls_of_a_binding_hold_for_a_requests_own_auth_too() -> None:
    for auth in (InjectedAuth("policy"), Binding(StaticBearerAuth("bound-token"), [JUDGE])):
        setting = Setting({"policy": Binding(StaticBearerAuth("bound-token"), [JUDGE])}, [rollout(auth=auth)])
        assert "does not cover" in await setting.refusal(own())
        setting = Setting({"policy": Binding(StaticBearerAuth("bound-token"), [BASE])}, [rollout(auth=auth)])
    setting = Setting(requests=[rollout(auth=Binding(StaticBearerAuth("bound-token")))])
    assert await setting.headers(own()) == {"Authorization": "Bearer bound-token"}


async def test_a_source_of_the_callers_own_may_refer_to_another_by_its_name() -> None:
    class Wrapping:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            return {**await InjectedAuth("inner").headers_for_request(context), "X-Outer": "yes"}

    setting = Setting({"inner": Binding(StaticBearerAuth("inner-token"), [JUDGE])}, [rollout(auth=Wrapping())])
    assert await setting.headers(own()) == {"Authorization": "Bearer inner-token", "X-Outer": "yes"}


# -- bindings -------------------------------------------------------------------------------------------------


async def test_a_binding_is_answered_for_the_urls_it_names() -> None:
    setting = judged("https://other.example", JUDGE)
    assert await setting.headers(bound()) == {"Authorization": "Bearer provided-token"}


async def test_a_binding_nobody_made_is_refused_with_the_words_of_injected_auth() -> None:
    assert "No runtime model-auth provider" in await Setting().refusal(bound())
    assert "'judge'" in await Setting().refusal(bound())


async def test_an_injected_auth_as_source_is_refused_with_the_words_of_injected_auth() -> None:
    setting = Setting({"judge": Binding(InjectedAuth("judge"), urls=[JUDGE])})
    assert "cannot reference another InjectedAuth" in await setting.refusal(bound())


async def test_the_refusal_names_the_argument_and_the_option_to_add() -> None:
    text = await judged("https://other.example").refusal(bound())
    assert text == (
        "binding 'judge' does not cover https://judge.example/v1. If that is meant, pass "
        "auth={'judge': Binding(..., urls=['https://judge.example/v1'])} "
        "(command line: --auth judge=env:VARIABLE@https://judge.example/v1)."
    )


async def test_the_refusal_names_what_replaces_the_argument_where_that_is_active() -> None:
    with bind_model_auth({"judge": Source()}):
        setting = judged(JUDGE)
    text = await setting.refusal(bound())
    assert "bind_model_auth({'judge': Binding(..., urls=['https://judge.example/v1'])})" in text
    assert "--auth" not in text


async def test_an_option_to_copy_cannot_do_anything_else_in_a_shell() -> None:
    text = await judged("https://other.example").refusal(bound("https://judge.example/$(reboot);`id`"))
    assert "--auth 'judge=env:VARIABLE@https://judge.example/$(reboot);`id`'" in text


async def test_a_url_that_no_binding_can_cover_is_refused_without_an_argument_to_add() -> None:
    text = await judged(JUDGE).refusal(bound("https://judge.example/v1/../admin"))
    assert text == "binding 'judge' does not cover https://judge.example/v1/../admin: its path has segments of dots."


async def test_a_binding_without_urls_is_for_the_origins_of_the_calls_own_requests() -> None:
    setting = judged(requests=[rollout("r1"), rollout("r2", base_url="http://127.0.0.1:8000/v1")])
    setting.scopes[1].end("r1")
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
    assert await setting.headers(own(base_url="model.example:8000/v1"))


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


@pytest.mark.parametrize("auth", ["token", Binding(StaticBearerAuth("x"))])
def test_a_binding_of_no_model_auth_is_refused(auth: Any) -> None:
    with pytest.raises(TypeError, match=f"must satisfy ModelAuth, got {type(auth).__name__}"):
        Binding(auth)


async def test_a_binding_that_is_bound_in_process_holds_to_its_urls_there() -> None:
    with bind_model_auth({"judge": Binding(StaticBearerAuth("judge-token"), [JUDGE])}):
        headers = await InjectedAuth("judge").headers_for_request(ModelRequestContext(JUDGE, "m", "r"))
        with pytest.raises(HeadersRefusedError, match="does not cover https://evil"):
            await InjectedAuth("judge").headers_for_request(ModelRequestContext("https://evil.example", "m", "r"))
    assert headers == {"Authorization": "Bearer judge-token"}
    anywhere = Binding(StaticBearerAuth("judge-token"))
    assert await anywhere.headers_for_request(ModelRequestContext("https://any.example", "m", "r")) == headers


# -- the caller's context -------------------------------------------------------------------------------------


async def test_an_active_bind_model_auth_replaces_the_auth_argument_whole() -> None:
    setting = Setting({"judge": Binding(StaticBearerAuth("argument-token"), [JUDGE]), "other": StaticBearerAuth("x")})
    with bind_model_auth({"judge": StaticBearerAuth("bound-token")}):
        setting.scopes[2] = setting.broker.scope([rollout()])
    assert setting.scopes[2].names() == ["judge"]
    assert await setting.headers(bound(BASE, call=2)) == {"Authorization": "Bearer bound-token"}
    # the argument's URLs go with it
    assert "does not cover" in await setting.refusal(bound(JUDGE, call=2))
    with bind_model_auth({}):
        assert setting.broker.scope().names() == []
    assert setting.broker.scope().names() == ["judge", "other"]
    assert await setting.headers(bound()) == {"Authorization": "Bearer argument-token"}


async def test_every_worker_is_constructed_with_what_was_bound_at_the_first_time() -> None:
    setting = judged(JUDGE)
    first = setting.broker.construction()
    with bind_model_auth({"another": Source()}):
        assert setting.broker.construction() is first
    assert first.names() == ["judge"]


async def test_bind_model_auth_takes_urls_along_in_a_binding() -> None:
    with bind_model_auth({"judge": Binding(StaticBearerAuth("bound-token"), [JUDGE])}):
        setting = Setting()
    assert await setting.headers(bound()) == {"Authorization": "Bearer bound-token"}
    assert "does not cover" in await setting.refusal(bound(BASE))


async def test_a_source_sees_the_context_variables_of_whoever_made_the_call() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    source = Source(lambda: {"X-Tenant": tenant.get()})
    setting = Setting(requests=[rollout(auth=source)])
    tenant.set("somebody")
    setting.scopes[2] = setting.broker.scope([rollout(auth=source)])
    tenant.set("somebody else")
    answers = await asyncio.gather(setting.headers(own()), setting.headers(own(call=2)))
    assert [*answers] == [{"X-Tenant": "nobody"}, {"X-Tenant": "somebody"}]


async def test_what_a_source_sets_in_its_context_is_not_seen_the_next_time() -> None:
    calls: contextvars.ContextVar[int] = contextvars.ContextVar("calls", default=0)

    def answer() -> dict[str, str]:
        calls.set(calls.get() + 1)
        return {"X-Calls": str(calls.get())}

    setting = Setting(requests=[rollout(auth=Source(answer))])
    assert [await setting.headers(own()) for _ in range(2)] == [{"X-Calls": "1"}] * 2


async def test_an_answer_carries_the_number_of_its_request() -> None:
    setting = Setting()
    setting.desk.ask(own(request=41))
    (answer,) = setting.sent
    assert isinstance(answer, Headers)
    assert answer.request == 41
