"""A typed client of a service's REST API.

Comes in: the service's URL and a key. Goes out: the answers as types of `wire`. What may safely be asked twice is asked
again when a connection fails or the service is busy; what makes a new job is not.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from runner.errors import ClientError, ServiceRefusedError, ServiceUnreachableError, UsageError
from runner.service.client.answers import checked_url, error_of, event, read, retry_after, strange, unreachable
from runner.service.client.bodies import Body
from runner.service.client.streams import Pause, messages
from runner.service.client.wire import (
    AuditPage,
    CreatedKey,
    Event,
    Judgement,
    Key,
    KeyList,
    Me,
    NewKey,
    NewUpload,
    NewValidation,
    Readiness,
    State,
    UploadPlace,
    Validation,
    ValidationPage,
)
from runner.validation.verdict import Verdict

if TYPE_CHECKING:
    import httpx

API: Final = "/api/v1"
TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 300.0
"""For how long a stream that was lost is looked for, and a service that is busy is asked again."""

STEADY_S: Final = 10.0
"""A stream that has lasted for so long was there; one that ends sooner is looked for ever less often."""

STREAM_SILENCE_S: Final = 60.0
"""After which a stream is taken for lost: several times of what a server lets pass between two comments."""

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
ATTEMPTS: Final = 5
A = TypeVar("A", bound=BaseModel)


class ServiceClient:
    """A client of one service, for one key. Use as an asynchronous context manager.

    Args:
        url: The service's URL, without `/api`.
        key: An API key.
        timeout_s: Seconds without a byte after which a request has failed.
        patience_s: Seconds for which what may be asked again is.
        on_trouble: Told in one line why something is asked again.

    Raises:
        UsageError: the URL or the key cannot be one.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        on_trouble: Callable[[str], None] | None = None,
    ) -> None:
        self.url = checked_url(url)
        if not (key and key.isascii() and key.isprintable()):
            raise UsageError("an API key has printable ASCII characters only.", hint="Give the key as it was shown.")
        self._key = key
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._on_trouble = on_trouble or (lambda _: None)
        self._http: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"ServiceClient({self.url!r})"

    async def __aenter__(self) -> Self:
        import httpx

        self._http = httpx.AsyncClient(timeout=self._timeout_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    # -- who is asking ----------------------------------------------------------------------------------------

    async def me(self) -> Me:
        """Return key, tenant, quotas and what is used of them."""
        return await self._get(Me, "/me")

    async def ready(self) -> Readiness:
        """Return whether the service can do its work, and what is in the way."""
        answer = await self._ask("GET", f"{self.url}/readyz", good=(200, 503), again=False)
        return read(Readiness, answer)

    # -- uploads ----------------------------------------------------------------------------------------------

    async def upload(
        self,
        path: str,
        source: bytes | Path,
        *,
        mime: str = "application/octet-stream",
        on_bytes: Callable[[int], None] | None = None,
    ) -> str:
        """Send a file.

        Args:
            path: What it is called among the tenant's.
            source: Its content, or where it is; a file is read in pieces, and must not change meanwhile.
            mime: Its media type.
            on_bytes: Told of each piece that was sent, with its size; negative for what has to be sent again.

        Returns:
            The upload's id, for `NewValidation`.

        Raises:
            OSError: the file cannot be read.
            ClientError: it was not taken.
        """
        body = Body(source, on_bytes)
        size, digest = await asyncio.to_thread(body.measure)
        asked = NewUpload(path=path, bytes=size, sha256=digest, mime=mime)
        # a place that nothing is sent to costs nothing and goes by itself, so this may be asked again
        place = read(UploadPlace, await self._ask("POST", "/uploads", body=asked, again=True, good=(201,)))
        headers = {"Content-Type": mime, "Content-Length": str(size)}
        try:
            await self._ask(
                "PUT", place.url, content=body.pieces, headers=headers, key=False, again=True, good=(200, 201)
            )
        except ServiceRefusedError as error:
            # then the answer to an earlier attempt was lost
            if error.answer_code != "already-stored":
                raise
        return place.id

    # -- validations ------------------------------------------------------------------------------------------

    async def submit(self, new: NewValidation) -> Validation:
        """Begin a validation.

        Not asked again when its answer is lost, since there would be two: look at `validations` then.
        """
        return read(Validation, await self._ask("POST", "/validations", body=new, again=False, good=(201,)))

    async def validation(self, validation_id: str) -> Validation:
        """Return a validation as it is now."""
        return await self._get(Validation, f"/validations/{_segment(validation_id)}")

    async def validations(
        self,
        *,
        state: State | None = None,
        judgement: Judgement | None = None,
        query: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> ValidationPage:
        """Return a page of validations, newest first.

        Args:
            state: Only those in it.
            judgement: Only those judged so.
            query: Only those whose name has this in it.
            before: `next` of the page before.
            limit: How many at most.
        """
        asked = {"state": state, "judgement": judgement, "query": query, "before": before, "limit": limit}
        return await self._get(ValidationPage, "/validations", asked)

    async def cancel(self, validation_id: str) -> Validation:
        """Ask that a validation stops; one that is over stays as it is."""
        path = f"/validations/{_segment(validation_id)}/cancel"
        return read(Validation, await self._ask("POST", path, again=True, good=(200, 202)))

    async def delete(self, validation_id: str) -> None:
        """Delete a validation that is over, with its results."""
        await self._ask("DELETE", f"/validations/{_segment(validation_id)}", again=True, good=(200, 204))

    async def verdict(self, validation_id: str) -> Verdict:
        """Return the verdict of a validation that is done.

        Raises:
            NotFoundError: there is none (yet).
        """
        answer = await self._ask("GET", f"/validations/{_segment(validation_id)}/verdict", again=True)
        try:
            return Verdict.from_json(answer.content)
        except ValueError as error:
            raise strange(answer, f"no verdict that this release can read: {error}") from None

    async def report(self, validation_id: str) -> bytes:
        """Return the page of a validation that is done, as HTML."""
        return (await self._ask("GET", f"/validations/{_segment(validation_id)}/report", again=True)).content

    async def logs(self, validation_id: str) -> str:
        """Return what was printed and logged, as far as it was kept."""
        return (await self._ask("GET", f"/validations/{_segment(validation_id)}/logs", again=True)).text

    async def events(self, validation_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Give what happens in a validation as it happens, from its beginning to its event `end`.

        A connection that is lost is made again, and the stream goes on after the last event that was given: none is
        missing and none comes twice.

        Args:
            validation_id: Which one.
            after: Number of an event that was seen already, to begin after it.

        Raises:
            ServiceUnreachableError: it could not be had again for as long as `patience_s`.
            ClientError: the service refuses it.
        """
        attempt, lost_at, opened_at = 0, time.monotonic(), math.inf

        def opened() -> None:
            nonlocal opened_at
            opened_at = time.monotonic()

        while True:
            trouble, wait_s, opened_at = "the stream of events ended early", 0.0, math.inf
            try:
                async for item in self._stream(validation_id, after, opened):
                    if item is None:
                        return
                    if isinstance(item, Pause):
                        wait_s = min(item.seconds, LONGEST_PAUSE_S)
                        continue
                    after = item.seq
                    yield item
                    if item.kind == "end":
                        return
            except ClientError as error:
                if not error.passing:
                    raise
                trouble = error.message.rstrip(".")
            now = time.monotonic()
            if now - opened_at > STEADY_S:
                attempt, lost_at = 0, now
            attempt += 1
            if now - lost_at > self._patience_s:
                raise ServiceUnreachableError(
                    f"the events of {validation_id} at {self.url} are lost: {trouble}.",
                    hint="The validation goes on there; look at it later.",
                )
            self._on_trouble(f"{trouble}; going on after event {after}")
            await asyncio.sleep(max(wait_s, _pause(attempt)))

    async def _stream(
        self, validation_id: str, after: int, opened: Callable[[], None]
    ) -> AsyncIterator[Event | Pause | None]:
        import httpx

        headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = str(after)
        address = f"{self.url}{API}/validations/{_segment(validation_id)}/events"
        timeout = httpx.Timeout(self._timeout_s, read=max(STREAM_SILENCE_S, self._timeout_s))
        try:
            async with self._client().stream("GET", address, headers=headers, timeout=timeout) as answer:
                if answer.status_code == 204:
                    # it is over, and `after` was the last one
                    yield None
                    return
                if answer.status_code != 200:
                    await answer.aread()
                    raise error_of(answer, "GET", address)
                opened()
                async for item in messages(answer.aiter_lines()):
                    if isinstance(item, Pause):
                        yield item
                    elif item.id is not None and item.id > after:
                        after = item.id
                        yield event(item.id, item.kind, item.data, answer)
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error

    # -- keys and audit, for the scope `admin` ----------------------------------------------------------------

    async def keys(self) -> list[Key]:
        """Return the tenant's keys, without their secrets."""
        return (await self._get(KeyList, "/keys")).items

    async def create_key(self, new: NewKey) -> CreatedKey:
        """Make a key; its secret is in the answer and nowhere else. Not asked again when the answer is lost."""
        return read(CreatedKey, await self._ask("POST", "/keys", body=new, again=False, good=(201,)))

    async def revoke_key(self, key_id: str) -> Key:
        """Make a key worthless, at once and for good."""
        return read(Key, await self._ask("POST", f"/keys/{_segment(key_id)}/revoke", again=True))

    async def audit(self, *, before: int | None = None, limit: int | None = None) -> AuditPage:
        """Return a page of the tenant's audit trail, newest first."""
        return await self._get(AuditPage, "/audit", {"before": before, "limit": limit})

    # -- requests ---------------------------------------------------------------------------------------------

    async def _get(self, kind: type[A], path: str, query: Mapping[str, object] | None = None) -> A:
        return read(kind, await self._ask("GET", path, query=query, again=True))

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: BaseModel | None = None,
        content: Callable[[], AsyncIterator[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        key: bool = True,
        again: bool,
        good: tuple[int, ...] = (200,),
    ) -> httpx.Response:
        """Send a request, again if that is safe and may help; return its good answer."""
        import httpx

        address = path if "://" in path else f"{self.url}{API}{path}"
        sent = dict(headers or {})
        if key:
            sent["Authorization"] = f"Bearer {self._key}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        parameters = {name: str(value) for name, value in (query or {}).items() if value is not None}
        began, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            wait_s = _pause(attempt)
            try:
                answer = await self._client().request(
                    method,
                    address,
                    params=parameters or None,
                    content=content() if content is not None else body.model_dump_json() if body is not None else None,
                    headers=sent,
                )
            except httpx.HTTPError as error:
                trouble: ClientError = unreachable(address, error)
                # what was never sent may be sent again, whatever it is
                repeated = again or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            else:
                if answer.status_code in good:
                    return answer
                trouble = error_of(answer, method, address)
                # who is turned away for coming too often has had nothing done
                repeated = answer.status_code == 429 or (again and trouble.passing)
                wait_s = max(wait_s, retry_after(answer))
            if not repeated or attempt >= ATTEMPTS or time.monotonic() + wait_s - began > self._patience_s:
                raise trouble
            self._on_trouble(f"{trouble.message.rstrip('.')}; trying again")
            await asyncio.sleep(wait_s)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            raise RuntimeError("a ServiceClient is used inside of `async with`")
        return self._http


def _segment(text: str) -> str:
    return quote(text, safe="")


def _pause(attempt: int) -> float:
    # so that many that were turned away at once do not come back at once
    full: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt - 1, 10))
    return full * random.uniform(0.5, 1.0)  # noqa: S311
