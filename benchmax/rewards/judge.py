"""A model that is asked for a JSON object, one request at a time."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from benchmax.auth import ModelAuth, ModelRequestContext
from benchmax.envs.shared_types import RolloutFailure
from benchmax.rewards.answers import json_object, shortened
from benchmax.rewards.arguments import is_finite, is_integer_from, is_number, require_text

if TYPE_CHECKING:
    from openai import AsyncOpenAI as AsyncOpenAI

__all__ = ["Judge", "JudgeError"]

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 256
"""Requests to one judge URL at a time in one event loop: below the 1,024 descriptors that many processes may open."""

AUTH_BACKOFF_S: Final = 0.5
"""Wait after the first refused credential; the k-th refusal waits k times as long."""

MAX_ERROR_CHARS: Final = 2000
"""Longest account of a failure: a server may answer with a page."""

_in_flight: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()


class JudgeError(RolloutFailure):
    """Raised when a judge gave no usable answer; as a `RolloutFailure` it has the reason `judge_error`.

    Args:
        message: What happened; becomes the outcome's error.
    """

    def __init__(self, message: str) -> None:
        super().__init__("judge_error", message)


@dataclass(frozen=True, slots=True)
class Judge:
    """A chat model to ask for verdicts. Picklable as far as its `auth` is.

    Args:
        model: Name of the model as its server knows it.
        base_url: Base URL of an OpenAI-compatible API.
        auth: Credential source, asked before every HTTP attempt; `InjectedAuth("judge")` in bundles.
        timeout: Seconds that one HTTP attempt may wait for the server at a time; `None` waits for ever.
        max_retries: How often the SDK repeats a request after a lost connection, 408, 409, 429 or 5xx.
        auth_attempts: Requests made in total when the server answers 401 or 403.

    Raises:
        ValueError: a text is blank or a number is out of range.
        TypeError: `auth` is not a `ModelAuth`.
    """

    model: str
    base_url: str
    auth: ModelAuth = field(repr=False)
    timeout: float | None = 60.0
    max_retries: int = 3
    auth_attempts: int = 3

    def __post_init__(self) -> None:
        require_text("Judge", model=self.model, base_url=self.base_url)
        if not isinstance(self.auth, ModelAuth):
            raise TypeError(
                f"Judge.auth must be a ModelAuth, got {type(self.auth).__name__}; "
                "use InjectedAuth('judge') or StaticBearerAuth(token)."
            )
        if self.timeout is not None and (not is_number(self.timeout) or not self.timeout > 0):
            raise ValueError(f"Judge.timeout must be a positive number of seconds or None, got {self.timeout!r}.")
        for name, least in (("max_retries", 0), ("auth_attempts", 1)):
            value = getattr(self, name)
            if not is_integer_from(value, least):
                raise ValueError(f"Judge.{name} must be an integer of at least {least}, got {value!r}.")

    async def request_json(
        self, prompt: str, *, request_id: str, temperature: float = 0.0, max_tokens: int | None = None
    ) -> tuple[dict[str, Any], str]:
        """Ask once and return the JSON object of the answer, and the answer as it came.

        Think blocks, a code fence and text around the object are skipped. An answer without a JSON object is an
        error and is not asked for again.

        Args:
            prompt: The user message.
            request_id: Label of the request, told to `auth` in place of a rollout id.
            temperature: Sampling temperature.
            max_tokens: Most tokens of the answer; `None` leaves it to the server.

        Raises:
            ValueError: `prompt` or `request_id` is blank, `temperature` is not finite, `max_tokens` is below 1.
            TypeError: `temperature` is not a number.
            JudgeError: the request failed, the credentials were refused, or the answer has no JSON object.
        """
        require_text("Judge.request_json", prompt=prompt, request_id=request_id)
        if not is_number(temperature):
            raise TypeError(f"Judge.request_json needs a number as temperature, got {temperature!r}.")
        if not is_finite(temperature):
            raise ValueError(f"Judge.request_json needs a finite temperature, got {temperature!r}.")
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
        }
        if max_tokens is not None:
            if not is_integer_from(max_tokens, 1):
                raise ValueError(
                    f"Judge.request_json needs a positive integer or None as max_tokens, got {max_tokens!r}."
                )
            body["max_tokens"] = max_tokens
        try:
            raw = await _ask_with_credentials(self, request_id, body)
            return json_object(raw), raw
        except JudgeError:
            raise
        except Exception as error:
            raise JudgeError(f"Judge request failed ({_where(self, request_id)}): {_described(error)}") from error


async def _ask_with_credentials(judge: Judge, request_id: str, body: dict[str, Any]) -> str:
    """Ask until the server takes the credentials, which are resolved anew for every attempt."""
    attempt = 1
    while True:
        try:
            return await _ask(judge, request_id, body)
        except Exception as error:
            if getattr(error, "status_code", None) not in (401, 403):
                raise
            if attempt == judge.auth_attempts:
                raise JudgeError(
                    f"Judge authentication failed {attempt} times ({_where(judge, request_id)}): {_described(error)}"
                ) from error
            logger.warning("judge.auth_refused request_id=%s attempt=%d", request_id, attempt)
        await asyncio.sleep(AUTH_BACKOFF_S * attempt)
        attempt += 1


async def _ask(judge: Judge, request_id: str, body: dict[str, Any]) -> str:
    try:
        async with _slot(judge.base_url), _client(judge, request_id) as client:
            response = await client.chat.completions.create(**body, timeout=judge.timeout)
    except _NoHeadersError as failure:
        raise failure.reason from failure.reason.__cause__
    choices = getattr(response, "choices", None)
    content = choices[0].message.content if choices else None
    if content is not None and not isinstance(content, str):
        raise ValueError(f"the answer's content is a {type(content).__name__}, not a text")
    if content is None or not content.strip():
        what = "no content" if choices else "no choices"
        raise ValueError(f"empty response ({what}); check that the URL serves chat completions of this model")
    return content.strip()


@asynccontextmanager
async def _slot(base_url: str) -> AsyncIterator[None]:
    slots = _in_flight.setdefault(asyncio.get_running_loop(), {})
    if base_url not in slots:
        slots[base_url] = asyncio.Semaphore(MAX_IN_FLIGHT)
    async with slots[base_url]:
        yield


@asynccontextmanager
async def _client(judge: Judge, request_id: str) -> AsyncIterator[Any]:
    """Yield a client of one attempt, and close it."""
    # here and not at the top: they load openai and its HTTP library, which an import must not
    from benchmax.transport.async_pool import AsyncPooledTransport
    from benchmax.transport.clients import _EXPLICIT_AUTH_KEY, _without_environment, request_model_auth_class
    from benchmax.transport.http_family import openai_family

    family = openai_family()
    context = ModelRequestContext(judge.base_url, judge.model, request_id)
    http_client = family.http.AsyncClient(
        auth=request_model_auth_class()(_UnrepeatedAuth(judge.auth), context), transport=AsyncPooledTransport(family)
    )
    # looked up in the module at call time: dependents replace the name to answer without a server
    factory: Any = sys.modules[__name__].AsyncOpenAI
    client = _without_environment(
        factory(
            api_key=_EXPLICIT_AUTH_KEY,
            base_url=judge.base_url,
            max_retries=judge.max_retries,
            http_client=http_client,
        )
    )
    # what replaces the class may offer only one of its two ways to be closed
    if iscoroutinefunction(getattr(client, "close", None)):
        try:
            yield client
        finally:
            await client.close()
    else:
        async with client as entered:
            yield entered


class _NoHeadersError(BaseException):
    """Carries what a credential source raised past the SDK: openai 2 takes any `Exception` for a lost connection."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


class _UnrepeatedAuth:
    """A credential source whose failure ends the request at once."""

    def __init__(self, auth: ModelAuth) -> None:
        self._auth = auth

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        try:
            return await self._auth.headers_for_request(context)
        except Exception as error:
            raise _NoHeadersError(error) from error


def _described(error: BaseException) -> str:
    """Return an exception with its causes: the SDK's own text for a failing credential source says nothing of it."""
    texts: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = str(cause).strip()
        if not any(text and text in earlier for earlier in texts):
            texts.append(f"{type(cause).__name__}: {text}" if text else type(cause).__name__)
        cause = cause.__cause__
    return shortened("; caused by ".join(texts), MAX_ERROR_CHARS)


def _where(judge: Judge, request_id: str) -> str:
    return f"{request_id}, model {judge.model!r} at {judge.base_url}"


def __getattr__(name: str) -> Any:
    if name == "AsyncOpenAI":
        import openai

        return globals().setdefault(name, openai.AsyncOpenAI)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
