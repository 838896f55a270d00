"""Credential sources of every kind: asynchronous and plain, slow and broken ones; and no stampede of sign-ins."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth
from runner.broker import Binding
from runner.limits import MAX_HEADER_BYTES, PROVIDER_THREADS, Limits
from runner.protocol import Headers, HeadersRefused
from tests.unit.broker_lab import BASE, JUDGE, Held, Setting, Source, bound, own, rollout, turns

PATIENT = Limits()
HASTY = Limits(headers_s=0.05)


def rollouts(count: int, auth: Any) -> list[Any]:
    return [rollout(f"r{number}", auth=auth) for number in range(count)]


# -- one sign-in for all --------------------------------------------------------------------------------------


class Caching:
    """Keeps a token for as long as it is good; knows no lock. What it does to get one, tests decide."""

    def __init__(self) -> None:
        self.token = ""
        self.refreshes = 0
        self.go_on = asyncio.Event()
        self.failing = False

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        if not self.token:
            self.refreshes += 1
            await self.go_on.wait()
            await asyncio.sleep(0)
            if self.failing:
                raise ConnectionError("503 from the identity provider")
            self.token = f"token-number-{self.refreshes}"
        return {"Authorization": f"Bearer {self.token}", "X-Rollout": context.rollout_id}

    def expire(self) -> None:
        self.token = ""


async def test_an_expired_token_is_refreshed_once_for_sixty_four_rollouts() -> None:
    source = Caching()
    setting = Setting(requests=rollouts(64, source))
    asked = [setting.begin(own(f"r{number}")) for number in range(64)]
    await turns()
    source.go_on.set()
    answers = await asyncio.gather(*asked)
    assert source.refreshes == 1
    # and each has the answer that was made for it
    assert [answer.headers for answer in answers if isinstance(answer, Headers)] == [
        {"Authorization": "Bearer token-number-1", "X-Rollout": f"r{number}"} for number in range(64)
    ]


@pytest.mark.parametrize("burst", [1, 7, 30])
async def test_under_steady_load_each_expiry_costs_one_refresh(burst: int) -> None:
    source = Caching()
    source.go_on.set()
    setting = Setting(requests=rollouts(30, source))
    asked = []
    for turn in range(60):
        asked += [setting.begin(own(f"r{(turn + number) % 30}")) for number in range(burst)]
        if turn in (20, 33, 50):
            source.expire()
        await asyncio.sleep(0)
    answers = await asyncio.gather(*asked)
    assert {type(answer) for answer in answers} == {Headers}
    assert source.refreshes == 4


async def test_calls_of_several_workers_share_a_sign_in_too() -> None:
    source = Caching()
    setting = Setting({"judge": Binding(source, urls=[JUDGE])})
    sent: list[Any] = []
    for _ in range(3):
        desk = setting.broker.desk({1: setting.broker.scope()}, PATIENT, sent.append)
        for number in range(3):
            desk.ask(bound(rollout_id=f"label-{number}"))
    await turns()
    source.go_on.set()
    await turns()
    assert source.refreshes == 1
    assert [type(answer) for answer in sent] == [Headers] * 9


async def test_a_failure_is_shared_by_all_who_waited_and_the_next_one_asks_anew() -> None:
    source = Caching()
    source.failing = True
    setting = Setting(requests=rollouts(64, source))
    asked = [setting.begin(own(f"r{number}")) for number in range(64)]
    await turns()
    source.go_on.set()
    answers = await asyncio.gather(*asked)
    assert source.refreshes == 1
    assert {answer.failure.type for answer in answers if isinstance(answer, HeadersRefused)} == {
        "CredentialSourceError"
    }
    assert len(answers) == 64
    # one that failed once is not one that was revoked
    source.failing = False
    assert await setting.headers(own("r5"))
    assert source.refreshes == 2


async def test_the_same_question_asked_at_once_is_asked_once_and_another_one_is_not_answered_by_it() -> None:
    source = Held()
    source.answer = lambda: {"X-Number": str(len(source.asked))}
    setting = Setting(requests=rollouts(2, source))
    asked = [setting.begin(own(name)) for name in ("r0", "r0", "r1", "r0", "r1")]
    await source.started.wait()
    source.go_on.set()
    answers = [answer.headers["X-Number"] for answer in await asyncio.gather(*asked) if isinstance(answer, Headers)]
    assert answers == ["1", "1", "2", "1", "2"]
    assert [context.rollout_id for context in source.asked] == ["r0", "r1"]


async def test_the_same_question_of_two_calls_is_two_questions() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="first")
    source = Held(lambda: {"X-Tenant": tenant.get()})
    setting = Setting(requests=rollouts(1, source))
    tenant.set("second")
    setting.scopes[2] = setting.broker.scope(rollouts(1, source))
    asked = [setting.begin(own("r0")), setting.begin(own("r0", call=2))]
    await source.started.wait()
    source.go_on.set()
    answers = [answer.headers for answer in await asyncio.gather(*asked) if isinstance(answer, Headers)]
    assert answers == [{"X-Tenant": "first"}, {"X-Tenant": "second"}]


async def test_a_question_after_the_answer_is_a_new_one() -> None:
    source = Source()
    setting = Setting(requests=[rollout(auth=source)])
    for _ in range(3):
        await setting.headers(own())
    assert len(source.asked) == 3


async def test_after_the_first_the_others_ask_side_by_side() -> None:
    barrier = asyncio.Barrier(7)

    class Meeting(Source):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            if context.rollout_id != "r0":
                await barrier.wait()
            else:
                await asyncio.sleep(0)
            return {}

    setting = Setting(requests=rollouts(8, Meeting()))
    await asyncio.gather(*(setting.headers(own(f"r{number}")) for number in range(8)))


async def test_different_sources_do_not_wait_for_each_other() -> None:
    slow, quick = Held(), Source()
    setting = Setting(requests=[rollout("r1", auth=slow), rollout("r2", auth=quick)])
    waiting = setting.begin(own("r1"))
    await slow.started.wait()
    assert await setting.headers(own("r2"))
    assert not waiting.done()
    slow.go_on.set()
    await waiting


# -- sources that take their time -----------------------------------------------------------------------------


async def test_a_source_that_does_not_answer_is_given_up_with_the_limit_that_it_met() -> None:
    source = Held()
    setting = Setting(requests=rollouts(3, source), limits=HASTY)
    answers = await asyncio.gather(*(setting.ask(own(f"r{number}")) for number in range(3)))
    for answer in answers:
        assert isinstance(answer, HeadersRefused)
        assert answer.failure.type == "CredentialSourceError"
        assert answer.failure.message == (
            "the caller's credential source did not answer within 0.05 s. Raise limits.headers_s if it takes that long."
        )
    assert len(source.asked) == 1
    await source.ended.wait()


async def test_the_wait_for_ones_turn_counts() -> None:
    source = Held()
    setting = Setting(requests=rollouts(2, source), limits=HASTY)
    first = setting.begin(own("r0"))
    await source.started.wait()
    second = setting.begin(own("r1"))
    assert isinstance(await second, HeadersRefused)
    assert isinstance(await first, HeadersRefused)


async def test_a_source_that_will_not_be_cancelled_is_answered_for_all_the_same() -> None:
    class Stubborn(Held):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            self.started.set()
            while not self.go_on.is_set():
                try:
                    await self.go_on.wait()
                except asyncio.CancelledError:
                    self.ended.set()
            return {"Authorization": "Bearer much-too-late"}

    source = Stubborn()
    setting = Setting(requests=[rollout(auth=source)], limits=HASTY)
    assert "did not answer within" in await setting.refusal(own())
    await source.ended.wait()
    source.go_on.set()
    await setting.broker.aclose()
    assert len(setting.sent) == 1


async def test_a_worker_that_is_gone_leaves_no_question_that_nobody_waits_for() -> None:
    source = Held()
    setting = Setting(requests=rollouts(8, source))
    for number in range(8):
        setting.desk.ask(own(f"r{number}"))
    await source.started.wait()
    setting.desk.close()
    setting.desk.close()
    await setting.broker.aclose()
    assert source.ended.is_set()
    assert (setting.sent, setting.desk.waiting) == ([], 0)


async def test_a_worker_that_is_gone_does_not_take_the_questions_of_others_along() -> None:
    source = Held()
    setting = Setting({"judge": Binding(source, urls=[JUDGE])})
    setting.desk.ask(bound())
    await source.started.wait()
    sent: list[Any] = []
    other = setting.broker.desk({1: setting.broker.scope()}, PATIENT, sent.append)
    other.ask(bound(rollout_id="another"))
    setting.desk.close()
    source.go_on.set()
    await turns()
    assert [type(answer) for answer in sent] == [Headers]
    assert setting.sent == []
    # and one that waited for another's turn leaves alone
    source.go_on.clear()
    other.ask(bound(rollout_id="first"))
    await turns()
    third = setting.broker.desk({1: setting.broker.scope()}, PATIENT, sent.append)
    third.ask(bound(rollout_id="second"))
    third.close()
    source.go_on.set()
    await turns()
    assert len(sent) == 2


async def test_what_is_not_yet_asked_when_its_worker_goes_is_never_asked() -> None:
    source = Source()
    setting = Setting(requests=[rollout(auth=source)])
    setting.desk.ask(own())
    setting.desk.close()
    await turns()
    assert (source.asked, setting.sent) == ([], [])


# -- plain functions ------------------------------------------------------------------------------------------


class Plain:
    """A source whose method is no coroutine function; it may block."""

    def __init__(self, answer: Callable[[], Any] = lambda: {"Authorization": "Bearer plain-token"}) -> None:
        self.answer = answer
        self.threads: set[int] = set()
        self.calls = 0
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def headers_for_request(self, context: ModelRequestContext) -> Any:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
            self.threads.add(threading.get_ident())
        try:
            return self.answer()
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Where blocking sources wait; opened at the end, and then their threads must be gone."""
    event = threading.Event()
    yield event
    event.set()
    for thread in threading.enumerate():
        if thread.name == "benchmax-credentials":
            thread.join(10)
            assert not thread.is_alive()


async def test_a_plain_function_is_called_in_a_thread_while_the_loop_turns(gate: threading.Event) -> None:
    source = Plain(lambda: gate.wait(10) and {"Authorization": "Bearer plain-token"})
    setting = Setting(requests=[rollout(auth=source), rollout("r2")])
    waiting = setting.begin(own())
    # the loop is free: another rollout is answered meanwhile
    assert await setting.headers(own("r2"))
    gate.set()
    answer = await waiting
    assert isinstance(answer, Headers)
    assert source.threads
    assert threading.get_ident() not in source.threads


async def test_a_plain_function_sees_the_callers_context_variables(gate: threading.Event) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    tenant.set("somebody")
    setting = Setting(requests=[rollout(auth=Plain(lambda: {"X-Tenant": tenant.get()}))])
    tenant.set("somebody else")
    assert await setting.headers(own()) == {"X-Tenant": "somebody"}


async def test_a_plain_function_around_an_asynchronous_one_is_awaited_on_the_loop(gate: threading.Event) -> None:
    async def later() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"X-Thread": str(threading.get_ident())}

    class Callable_:
        async def __call__(self, context: ModelRequestContext) -> dict[str, str]:
            return await later()

    class Object:
        headers_for_request = Callable_()

    for auth in (Plain(later), Object()):
        setting = Setting(requests=[rollout(auth=auth)])
        assert await setting.headers(own()) == {"X-Thread": str(threading.get_ident())}


async def test_an_asynchronous_source_that_blocks_can_be_given_a_thread_and_a_loop_of_its_own(
    gate: threading.Event,
) -> None:
    loops: set[int] = set()

    class BlockingIO(Source):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            await asyncio.sleep(0)
            loops.add(id(asyncio.get_running_loop()))
            gate.wait(10)
            return self.answer()  # type: ignore[no-any-return]  # as in the class it is of

    source = BlockingIO()
    setting = Setting(
        {"judge": Binding(source, [JUDGE], blocking=True), "policy": Binding(source, blocking=True)},
        [rollout("r1", auth=Binding(source, blocking=True)), rollout("r2", auth=InjectedAuth("policy")), rollout("r3")],
    )
    asked = [setting.begin(request) for request in (own("r1"), own("r2"), bound())]
    assert await setting.headers(own("r3"))
    gate.set()
    assert [type(answer) for answer in await asyncio.gather(*asked)] == [Headers] * 3
    assert id(asyncio.get_running_loop()) not in loops


async def test_no_more_threads_run_at_once_than_the_limit_and_everybody_gets_an_answer(gate: threading.Event) -> None:
    both = threading.Barrier(PROVIDER_THREADS)

    def answer() -> dict[str, str]:
        # only as many as may run side by side can pass, and they must
        both.wait(10)
        return {}

    sources = [Plain(answer) for _ in range(4 * PROVIDER_THREADS)]
    setting = Setting(requests=[rollout(f"r{number}", auth=source) for number, source in enumerate(sources)])
    asked = [setting.begin(own(f"r{number}")) for number in range(len(sources))]
    before = {thread for thread in threading.enumerate() if thread.name == "benchmax-credentials"}
    assert len(before) <= PROVIDER_THREADS
    assert [type(answer) for answer in await asyncio.gather(*asked)] == [Headers] * len(sources)


async def test_a_plain_source_is_asked_by_one_first_as_well(gate: threading.Event) -> None:
    source = Plain(lambda: gate.wait(10) and {"X": "y"})
    setting = Setting(requests=rollouts(64, source))
    asked = [setting.begin(own(f"r{number}")) for number in range(64)]
    await turns()
    assert source.most == 1
    gate.set()
    await asyncio.gather(*asked)
    assert source.calls == 64
    assert source.most <= PROVIDER_THREADS


async def test_a_plain_source_that_blocks_is_given_up_and_holds_nobody_up_at_the_end(gate: threading.Event) -> None:
    source = Plain(lambda: gate.wait(10) and {})
    setting = Setting(requests=[rollout(auth=source)], limits=HASTY)
    assert "did not answer within 0.05 s" in await setting.refusal(own())
    waiting = Setting(requests=[rollout(auth=source)])
    waiting.desk.ask(own())
    await turns()
    waiting.desk.close()
    await waiting.broker.aclose()
    assert waiting.sent == []
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "benchmax-credentials")


async def test_a_source_for_which_there_is_no_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(_: object) -> None:
        raise RuntimeError("can't start new thread")

    source = Plain()
    setting = Setting(requests=[rollout(auth=source)])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        await setting.refusal(own())
        assert "can't start new thread" in setting.broker.audit[-1].reason
    assert await setting.headers(own())
    assert source.calls == 1


async def test_a_thread_ends_with_its_source_when_the_loop_is_closed_by_then(gate: threading.Event) -> None:
    source = Plain(lambda: gate.wait(10) and {})

    async def ask() -> None:
        setting = Setting(requests=[rollout(auth=source)])
        setting.desk.ask(own())
        await turns()
        setting.desk.close()
        await setting.broker.aclose()

    await asyncio.to_thread(asyncio.run, ask())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "benchmax-credentials"]
    gate.set()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


# -- sources that misbehave -----------------------------------------------------------------------------------


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


ODD = [
    (raising(RuntimeError("vault is sealed")), "raised RuntimeError"),
    (raising(KeyError("k")), "raised KeyError"),
    (raising(SystemExit("no credentials")), "raised SystemExit"),
    (raising(StopIteration()), "raised RuntimeError"),
    (raising(NoText()), "raised NoText"),
    (lambda: None, "must return a mapping of str to str"),
    (lambda: "Bearer x", "must return a mapping of str to str"),
    (lambda: [("Authorization", "x")], "must return a mapping of str to str"),
    (lambda: {"Authorization": None}, "must return a mapping of str to str"),
    (lambda: {"Authorization": b"x"}, "must return a mapping of str to str"),
    (lambda: {1: "x"}, "must return a mapping of str to str"),
    (lambda: {"": "x"}, "gave a header whose name is none"),
    (lambda: {"Bad Name": "x"}, "gave a header whose name is none"),
    (lambda: {"X\r\nHost": "x"}, "gave a header whose name is none"),
    (lambda: {"Authorizätion": "x"}, "gave a header whose name is none"),
    (lambda: {"Authorization": "Bearer secret-x\r\nHost: evil"}, "a line break or another control character"),
    (lambda: {"Authorization": "Bearer secret-x\n"}, "Strip what was read from a file"),
    (lambda: {"Authorization": "Bearer secret-x\0"}, "a line break or another control character"),
    (lambda: {"Authorization": "Bearer \udcff-secret-x"}, "characters that no header can carry"),
    (lambda: {"Authorization": "Bearer secret-x…"}, "characters that no header can carry"),
    (lambda: {"Authorization": "Bearer secret-x" * MAX_HEADER_BYTES}, f"the limit is {MAX_HEADER_BYTES}"),
    (lambda: {f"X-{number}": "" for number in range(MAX_HEADER_BYTES)}, f"the limit is {MAX_HEADER_BYTES}"),
]


@pytest.mark.parametrize(("answer", "text"), ODD, ids=[text for _, text in ODD])
@pytest.mark.parametrize("kind", [Source, Plain])
async def test_a_source_that_fails_is_a_typed_refusal_that_says_so(
    kind: Callable[[Callable[[], Any]], Any], answer: Callable[[], Any], text: str
) -> None:
    setting = Setting(requests=[rollout(auth=kind(answer))])
    refused = await setting.ask(own())
    assert isinstance(refused, HeadersRefused)
    assert refused.failure.type == "CredentialSourceError"
    assert text in refused.failure.message
    (entry,) = setting.broker.audit
    assert (entry.verdict, entry.answered) == ("failed", False)
    assert "secret-x" not in f"{refused}{entry}"
    # and the next one is not affected
    assert setting.desk.waiting == 0


async def test_the_text_of_a_sources_own_error_stays_with_the_caller() -> None:
    error = PermissionError("POST https://login.example?client_secret=long-lived-secret was refused")
    setting = Setting(requests=[rollout(auth=Source(raising(error)))])
    text = await setting.refusal(own())
    assert text == "the caller's credential source raised PermissionError. The header audit has its text."
    assert setting.broker.audit[-1].reason == f"the caller's credential source raised PermissionError. {error}"


async def test_a_source_that_cancels_itself_is_refused_and_is_no_cancellation_of_ours() -> None:
    setting = Setting(requests=[rollout(auth=Source(raising(asyncio.CancelledError())))])
    assert "credential source was cancelled" in await setting.refusal(own())


async def test_what_is_no_method_is_refused() -> None:
    class NotCallable:
        headers_for_request = "Bearer x"

    setting = Setting(requests=[rollout(auth=NotCallable())])  # type: ignore[arg-type]  # the point
    assert "raised TypeError" in await setting.refusal(own())
    assert "headers_for_request is no method" in setting.broker.audit[-1].reason


async def test_a_static_token_that_cannot_be_sent_is_refused_too() -> None:
    setting = Setting(requests=[rollout(auth=StaticBearerAuth("from-a-file\n"))])
    text = await setting.refusal(own())
    assert "Strip what was read from a file" in text
    assert "from-a-file" not in text


async def test_no_headers_at_all_are_an_answer_and_the_trail_says_so() -> None:
    setting = Setting(requests=[rollout(auth=Source(dict))])
    assert await setting.headers(own()) == {}
    (entry,) = setting.broker.audit
    assert (entry.answered, entry.reason) == (True, "without any header")


async def test_headers_of_str_subclasses_cross_as_plain_text() -> None:
    class Token(str):
        pass

    setting = Setting(requests=[rollout(auth=Source(lambda: {Token("Authorization"): Token("Bearer é\tf")}))])
    headers = await setting.headers(own())
    assert headers == {"Authorization": "Bearer é\tf"}
    assert {type(text) for pair in headers.items() for text in pair} == {str}


async def test_a_source_may_use_the_callers_own_loop() -> None:
    lock, loop = asyncio.Lock(), asyncio.get_running_loop()

    class Bound(Source):
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            async with asyncio.timeout(10), lock:
                assert asyncio.get_running_loop() is loop
                return {"X-Base": context.base_url}

    assert await Setting(requests=[rollout(auth=Bound())]).headers(own()) == {"X-Base": BASE}
