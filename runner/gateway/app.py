"""What is served: sessions, and below each the model's API. An ASGI application.

Paths are taken as they were sent: one that is written in any other way than below is not there.

    PUT    /v1/sessions/{id}                        open a session, where that is admitted
    POST   /sessions/{id}/v1/chat/completions
    POST   /sessions/{id}/v1/embeddings
    GET    /sessions/{id}/v1/models
    POST   /sessions/{id}/v1/collect                end it; what became of it
    DELETE /sessions/{id}/v1                        end it
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.gateway.client import Client, Receive, Send
from runner.gateway.exchange import ModelCall, UpstreamError
from runner.gateway.faults import JSON_TYPE, Headers, RefusedError
from runner.gateway.header_rules import sendable_headers
from runner.gateway.json_text import count_values, read_json
from runner.gateway.passage import Clean, Finished, Passage
from runner.gateway.session import (
    CHAT,
    EMBEDDINGS,
    MODELS,
    Session,
    Sessions,
    is_known,
    key_error,
    over_error,
    session_path,
)
from runner.limits import GATEWAY_HEAD_BYTES, KIB, MAX_JSON_VALUES, SESSION_TTL_S, VALUE_BYTES, Limits

_OPEN: Final = re.compile(r"/v1/sessions/([^/]+)")
_BELOW: Final = re.compile(r"/sessions/([^/]+)/v1(?:/(.+))?")
_COLLECT: Final = "collect"
_METHODS: Final = {CHAT: "POST", EMBEDDINGS: "POST", MODELS: "GET", _COLLECT: "POST", None: "DELETE"}
_MAX_OPENING_BYTES: Final = 64 * KIB
_TEXT_BYTES: Final = 20
"""In ordinary text a comma stands once in so many bytes; what has no more of them takes little more than its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A session that somebody wants to open over HTTP.

    Args:
        session_id: Its id.
        bearer: What the client shows to be allowed to.
        model: The model that it is for.
        max_context_tokens: Its context budget.
        ttl_seconds: How long it lives at most.
    """

    session_id: str
    bearer: str
    model: str
    max_context_tokens: int | None
    ttl_seconds: float | None


OpenSession = Callable[[Opening], Awaitable[Session]]
"""Opens a session, or raises a `RefusedError`."""


class App:
    """The application; see the module.

    Args:
        sessions: The sessions.
        limits: Sizes.
        clean: Takes secrets out of text.
        finished: Told of each call.
        open_session: Opens sessions over HTTP; `None` for nobody.
    """

    def __init__(
        self,
        sessions: Sessions,
        limits: Limits,
        *,
        clean: Clean,
        finished: Finished | None,
        open_session: OpenSession | None,
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._clean = clean
        self._finished = finished
        self._open_session = open_session
        self._held = 0

    async def serve(self, scope: Mapping[str, Any], receive: Receive, send: Send, *, origin: str | None) -> None:
        """Answer one request.

        Args:
            scope: As ASGI has it; its state has the `connection`.
            receive: As ASGI has it.
            send: As ASGI has it.
            origin: Whose connections were intercepted; `None` at the gateway's own address.
        """
        client = Client(scope, receive, send)
        try:
            _check_head(client)
            await (self._own(client) if origin is None else self._intercepted(client, origin))
        except ConnectionAbortedError:
            # the client has gone, and nobody is left to be told
            return
        except UpstreamError as error:
            await client.fail(error)
        except Exception as error:  # noqa: BLE001 - a mistake of the gateway's own must not look like the client's
            context = {"message": "a model call could not be passed on", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            await client.fail(UpstreamError("the gateway failed.", code="gateway_failed", status=500))

    async def _own(self, client: Client) -> None:
        target = client.target
        opened = _OPEN.fullmatch(target)
        if opened is not None and self._open_session is not None:
            await self._open(client, opened[1], self._open_session)
            return
        found = _BELOW.fullmatch(target)
        if found is None:
            raise _not_found(client)
        path, route = session_path(found[1]), found[2]
        session = self._session(client)
        own = path == session.path
        if not own and not session.covers_path(path):
            raise key_error("it is for another session.")
        if route not in _METHODS or client.query or (not own and route in (None, _COLLECT)):
            raise _not_found(client)
        if client.method != _METHODS[route]:
            raise _wrong_method(client, _METHODS[route])
        if route is None:
            await session.close()
            await client.answer(204, [], b"")
        elif route == _COLLECT:
            await _collect(client, session)
        elif own:
            await self._call(client, session, route, None)
        else:
            there = self._sessions.at(found[1])
            if there is None or there.base_url is None:
                raise key_error("the session at this address is over.")
            await self._call(client, session, route, f"{there.base_url.rstrip('/')}/{route}")

    async def _intercepted(self, client: Client, origin: str) -> None:
        session = self._session(client)
        url = origin + client.target
        route = session.below(url)
        if route is None:
            raise RefusedError(
                f"the session key is not accepted: it is not good at {origin}.", code="invalid_session_key", status=403
            )
        if client.method not in ("GET", "POST"):
            raise _wrong_method(client, "GET, POST")
        await self._call(client, session, route, f"{url}?{client.query}" if client.query else url)

    def _session(self, client: Client) -> Session:
        key = client.bearer()
        if key is None:
            raise key_error("there is none, as `Authorization: Bearer …`.")
        return self._sessions.of_key(key)

    async def _call(self, client: Client, session: Session, route: str, url: str | None) -> None:
        with self._holding() as hold:
            await self._pass(client, session, route, url, hold)

    @contextlib.contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Give what counts the bytes that one request holds, until it is over.

        Raises:
            RefusedError: all requests together hold too many.
        """
        mine = 0

        def hold(count: int) -> None:
            nonlocal mine
            if self._held + count > self._limits.requests_bytes:
                raise RefusedError(
                    "the gateway has too many large requests under way.", code="gateway_busy", status=503, retry=True
                )
            self._held += count
            mine += count

        try:
            yield hold
        finally:
            self._held -= mine

    async def _pass(
        self, client: Client, session: Session, route: str, url: str | None, hold: Callable[[int], None]
    ) -> None:
        body = await client.read(self._limits.request_bytes, hold)
        values = count_values(body)
        if values <= MAX_JSON_VALUES:
            hold(VALUE_BYTES * max(0, values - len(body) // _TEXT_BYTES))
        document: object = None
        if body:
            try:
                document = read_json(body)
            except ValueError as error:
                if is_known(route):
                    raise RefusedError(f"the body of the request is not JSON: {error}.") from None
        if client.method == "POST" and is_known(route) and not isinstance(document, dict):
            raise RefusedError("the body of the request must be a JSON object.")
        if session.is_over:
            raise over_error()
        call = ModelCall(
            session=session.id,
            rollout_id=session.rollout_id,
            binding=session.binding,
            number=session.number(),
            method=client.method,
            route=route,
            url=url,
            headers=sendable_headers(client.headers),
            body=body,
            document=document,
        )
        await Passage(client, session, call, self._limits, self._clean).run(self._finished)

    async def _open(self, client: Client, session_id: str, open_session: OpenSession) -> None:
        if client.method != "PUT":
            raise _wrong_method(client, "PUT")
        bearer = client.bearer()
        if bearer is None:
            raise key_error("there is none, as `Authorization: Bearer …`.")
        opening = _opening(session_id, bearer, await client.read(_MAX_OPENING_BYTES, _nothing))
        # whoever decides may take long, and the client or the gateway may go meanwhile
        with client.watched():
            session = await open_session(opening)
        await _send_json(client, {"session_key": session.key, "base_url": session.path})


def _check_head(client: Client) -> None:
    size = len(client.target) + sum(len(name) + len(value) for name, value in client.headers)
    if size > GATEWAY_HEAD_BYTES:
        raise RefusedError(
            f"the request's headers have more than {GATEWAY_HEAD_BYTES} bytes.", code="request_too_large", status=431
        )


def _nothing(count: int) -> None:
    """Hold any number of bytes: there are few."""


async def _collect(client: Client, session: Session) -> None:
    collected = await session.collect()
    usage = collected.usage
    await _send_json(
        client,
        {
            "num_calls": collected.num_calls,
            "contract_errors": [*collected.contract_errors],
            "contract_warnings": [*collected.contract_warnings],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.total_tokens,
            },
        },
    )


async def _send_json(client: Client, value: object) -> None:
    body = json.dumps(value).encode()
    headers: Headers = [(b"content-type", JSON_TYPE), (b"content-length", b"%d" % len(body))]
    await client.answer(200, headers, body)


def _opening(session_id: str, bearer: str, body: bytes) -> Opening:
    try:
        asked = read_json(body)
    except ValueError as error:
        raise RefusedError(f"the body of the request is not JSON: {error}.") from None
    if not isinstance(asked, dict):
        raise RefusedError("the body of the request must be a JSON object.")
    model, context, ttl = asked.get("model"), asked.get("max_context_tokens"), asked.get("ttl_seconds")
    if not isinstance(model, str) or not model:
        raise RefusedError("model must be a non-empty string.", param="model")
    if context is not None and (type(context) is not int or context <= 0):
        raise RefusedError("max_context_tokens must be a positive integer.", param="max_context_tokens")
    if ttl is not None and (type(ttl) not in (int, float) or not 0 < ttl <= SESSION_TTL_S):
        raise RefusedError(f"ttl_seconds must be above 0 and at most {SESSION_TTL_S:g}.", param="ttl_seconds")
    return Opening(session_id=session_id, bearer=bearer, model=model, max_context_tokens=context, ttl_seconds=ttl)


def _not_found(client: Client) -> RefusedError:
    return RefusedError(
        f"there is no {client.target[:200]!r} here. Below a session's base URL are {CHAT}, {EMBEDDINGS} and {MODELS}.",
        code="not_found",
        status=404,
    )


def _wrong_method(client: Client, allow: str) -> RefusedError:
    return RefusedError(
        f"{client.method[:20]} is not allowed here, {allow} is.",
        code="method_not_allowed",
        status=405,
        allow=allow,
    )
