"""What tests of the broker share: a desk with one call in flight, requests for it, and credential sources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmax.auth import ModelAuth, ModelRequestContext, StaticBearerAuth
from benchmax.envs.shared_types import Example, RolloutRequest
from runner.broker import Binding, Broker, CallScope
from runner.limits import Limits
from runner.protocol import AuthToWorker, HeaderRequest, Headers, HeadersRefused, encode
from runner.redaction import Redactor

BASE = "https://model.example/v1"
JUDGE = "https://judge.example/v1"


class Source:
    """A credential source that does what a test says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[], Any] = lambda: {"Authorization": "Bearer provided-token"}) -> None:
        self.answer = answer
        self.asked: list[ModelRequestContext] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.asked.append(context)
        return self.answer()  # type: ignore[no-any-return]  # tests return anything


class Held(Source):
    """Answers when it is told to."""

    def __init__(self, answer: Callable[[], Any] = lambda: {"Authorization": "Bearer provided-token"}) -> None:
        super().__init__(answer)
        self.go_on = asyncio.Event()
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.asked.append(context)
        self.started.set()
        try:
            await self.go_on.wait()
            return self.answer()  # type: ignore[no-any-return]  # tests return anything
        finally:
            self.ended.set()


def rollout(rollout_id: str = "r1", *, auth: ModelAuth | None = None, base_url: str = BASE, model: str = "m") -> Any:
    return RolloutRequest(
        rollout_id, Example("e", None), model, base_url, auth or StaticBearerAuth("own-token"), "eval"
    )


def own(name: str = "r1", **changes: Any) -> HeaderRequest:
    fields: dict[str, Any] = {
        "request": 7, "call": 1, "binding": None, "rollout": name, "base_url": BASE, "model": "m", "rollout_id": name,
    }  # fmt: skip
    return HeaderRequest(**{**fields, **changes})


def bound(url: str = JUDGE, **changes: Any) -> HeaderRequest:
    fields: dict[str, Any] = {"binding": "judge", "model": "judge-model", "rollout_id": "label"}
    return own(**{"rollout": None, "base_url": url, **fields, **changes})


class Setting:
    """A broker and the desk of one worker, with one call in flight."""

    def __init__(
        self, auth: Mapping[str, Any] | None = None, requests: Sequence[Any] = (), limits: Limits | None = None
    ) -> None:
        self.redactor = Redactor()
        self.broker = Broker(auth, self.redactor)
        self.scopes: dict[int, CallScope] = {1: self.broker.scope(requests or [rollout()])}
        self.limits = limits or Limits()
        self.sent: list[AuthToWorker] = []
        self._futures: dict[int, asyncio.Future[AuthToWorker]] = {}
        self.desk = self.broker.desk(self.scopes, self.limits, self._on_sent)
        self._numbers = iter(range(1000, 1_000_000))

    def _on_sent(self, message: AuthToWorker) -> None:
        # what cannot be sent would leave its request without an answer
        encode(message)
        self.sent.append(message)
        assert isinstance(message, (Headers, HeadersRefused))
        future = self._futures.get(message.request)
        if future is not None:
            assert not future.done(), "one request, one answer"
            future.set_result(message)

    def begin(self, request: HeaderRequest) -> asyncio.Future[AuthToWorker]:
        """Hand in a request under a number of its own; its answer comes with the future."""
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        request = HeaderRequest(**{**fields, "request": next(self._numbers)})
        future = self._futures[request.request] = asyncio.get_running_loop().create_future()
        self.desk.ask(request)
        return future

    async def ask(self, request: HeaderRequest) -> AuthToWorker:
        return await self.begin(request)

    async def headers(self, request: HeaderRequest) -> dict[str, str]:
        answer = await self.ask(request)
        assert isinstance(answer, Headers), answer
        return answer.headers

    async def refusal(self, request: HeaderRequest) -> str:
        """Ask for what is not given; return why not."""
        answer = await self.ask(request)
        assert isinstance(answer, HeadersRefused), answer
        assert not self.broker.audit[-1].answered
        return answer.failure.message


def judged(*urls: str, **options: Any) -> Setting:
    """A setting whose bundle has a judge, bound for these URLs."""
    return Setting({"judge": Binding(Source(), urls=urls)}, **options)


async def turns(count: int = 10) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)
