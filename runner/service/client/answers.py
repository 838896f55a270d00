"""Answers of a service, read: into types of `wire` where they are good, else into an error that says who has to act."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from runner.errors import (
    ClientError,
    KeyRefusedError,
    NotFoundError,
    ServiceBusyError,
    ServiceFaultError,
    ServiceRefusedError,
    ServiceUnreachableError,
    UsageError,
)
from runner.service.client.wire import ErrorAnswer, Event
from runner.text import one_line

if TYPE_CHECKING:
    import httpx

A = TypeVar("A", bound=BaseModel)


def checked_url(url: str) -> str:
    """Return a service's URL as requests are built from it.

    Raises:
        UsageError: it cannot be one.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = None
    if "@" in url:
        raise UsageError("the service's URL holds a user name or a password.", hint="The key is all that is needed.")
    if not fits or "?" in url or "#" in url:
        raise UsageError(
            f"{url!r} is not the URL of a service.", hint="It looks like https://host or http://127.0.0.1:8321."
        )
    return url.rstrip("/")


def retry_after(answer: httpx.Response) -> float:
    """Return for how many seconds an answer asks to wait; 0 for none."""
    text: str = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() else 0.0


def read(kind: type[A], answer: httpx.Response) -> A:
    """Read an answer's body.

    Raises:
        ServiceFaultError: it is something else.
    """
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise strange(answer, f"{place}: {first['msg']}") from None


def event(number: int, kind: str, data: str, answer: httpx.Response) -> Event:
    """Read one event of a stream; raises what `read` does."""
    try:
        return Event.model_validate_json(f'{{"seq": {number}, "kind": {json.dumps(kind)}, "data": {data or "{}"}}}')
    except ValidationError:
        raise strange(answer, f"event {number} is not JSON") from None


def strange(answer: httpx.Response, what: str) -> ServiceFaultError:
    """Return the error for an answer that says it is good and cannot be read."""
    return ServiceFaultError(
        f"{answer.request.url.copy_with(query=None)} gave an answer that cannot be read: {one_line(what)}.",
        status=answer.status_code,
        hint="Is it a benchmax service, of this release or a newer one?",
    )


def unreachable(url: str, error: httpx.HTTPError) -> ServiceUnreachableError:
    """Return the error for a request that was not answered."""
    import httpx

    parts = urlsplit(url)
    what = one_line(str(error)) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        what = "it does not answer in time"
    return ServiceUnreachableError(
        f"the service at {parts.scheme}://{parts.netloc} cannot be reached: {what}.",
        hint="Check the URL, and that the service runs.",
    )


def error_of(answer: httpx.Response, method: str, url: str) -> ClientError:
    """Turn an answer that is not good into an error that says who has to act."""
    status, path = answer.status_code, urlsplit(url).path
    try:
        said = ErrorAnswer.model_validate_json(answer.content)
    except ValidationError:
        facts: dict[str, Any] = {"request_id": answer.headers.get("X-Request-Id", "")}
        message, hint = f"{method} {path} was answered with {status} {answer.reason_phrase}", ""
        if 300 <= status < 400:
            hint = f"It leads to {one_line(answer.headers.get('Location', 'nowhere'))}; give that as the service's URL."
        elif status == 413:
            hint = "A proxy before the service may allow no bodies of that size."
    else:
        facts = {"request_id": said.request_id, "answer_code": said.error.code}
        message, hint = one_line(said.error.message, 1000).rstrip("."), one_line(said.error.hint, 500)
    message += "."
    facts |= {"status": status, "hint": hint}
    if facts["request_id"]:
        facts["detail"] = f"request id: {one_line(facts['request_id'])}"
    if status in (401, 403):
        return KeyRefusedError(message, **facts)
    if status == 404:
        return NotFoundError(message, **facts)
    if status == 429:
        return ServiceBusyError(message, **facts)
    return (ServiceRefusedError if 300 <= status < 500 else ServiceFaultError)(message, **facts)
