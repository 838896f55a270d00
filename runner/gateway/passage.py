"""One call on its way: from the client to the upstream, and the answer back, with a trace of both.

A whole answer is read before any of it is passed on, so that one that is none can be told as an error. A stream of
events is passed on as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

from runner.gateway.assembler import AnswerAssembler, answer_message
from runner.gateway.client import Client
from runner.gateway.events import EventStream, event_data, split_events
from runner.gateway.exchange import Answer, CallTrace, ModelCall, UpstreamError, Usage
from runner.gateway.faults import Headers, RefusedError, error_body
from runner.gateway.json_text import read_json, read_outline, write_json
from runner.gateway.session import Session, is_chat, is_known, over_error
from runner.gateway.usage import estimated_usage, read_usage
from runner.limits import ERROR_CHARS, Limits

Clean = Callable[[str], str]
Finished = Callable[[CallTrace], None]

EVENTS: Final = "text/event-stream"
_DONE: Final = b"[DONE]"
_DONE_LINE: Final = re.compile(rb"^data: ?\[DONE\]", re.MULTILINE)
_FINAL: Final = frozenset({*range(200, 300), *range(400, 600)})
"""Statuses that end a call, one way or the other."""

_OWN: Final = frozenset({"connection", "content-length", "content-type", "transfer-encoding"})
"""Headers of an answer that the gateway sets itself."""

END_OF_STREAM_S: Final = 1.0
"""How long the end of a stream may come after its last event, for its connection to be used again."""

GONE: Final = "client_gone"
"""Code of a call whose client went before it had its answer."""


class Passage:
    """One call. It is `Running` in its session.

    Args:
        client: Who asks.
        session: On whose key.
        call: What.
        limits: Sizes.
        clean: Takes secrets out of text.
    """

    __slots__ = (
        "_answer", "_asked", "_asks_usage", "_assembler", "_began", "_call", "_clean", "_client", "_code", "_done",
        "_first_byte", "_kept", "_limits", "_rest", "_room", "_session", "_size", "_spent", "_started",
        "_streamed", "_told", "_type", "_usage", "task",
    )  # fmt: skip

    def __init__(self, client: Client, session: Session, call: ModelCall, limits: Limits, clean: Clean) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self._client = client
        self._session = session
        self._call = call
        self._limits = limits
        self._clean = clean
        self._began = time.time()
        self._started = time.perf_counter()
        self._first_byte: float | None = None
        self._kept: list[bytes] = []
        self._room = max(0, limits.trace_bytes - len(call.body))
        self._size = 0
        self._type = ""
        self._streamed = False
        self._asked = False
        self._asks_usage = False
        self._done = False
        self._rest: AsyncIterator[bytes] | None = None
        self._usage: Usage | None = None
        self._spent = False
        self._told = False
        self._code: str | None = None
        self._assembler: AnswerAssembler | None = None
        self._answer: Answer | None = None

    def abort(self) -> None:
        """Cut the client's connection."""
        self._client.cut()

    async def run(self, finished: Finished | None) -> None:
        """Pass the call on and its answer back; whatever goes wrong is told to the client.

        Args:
            finished: Told of it when it is over.
        """
        contract = self._session.contract if is_chat(self._call.route) and self._call.method == "POST" else None
        with self._session.running(self):
            try:
                if contract is not None:
                    contract.began(self._call.number, self._call.document)
                with self._client.watched():
                    await self._pass_on()
            except UpstreamError as error:
                await self._fail(error)
            except asyncio.CancelledError:
                self._code = GONE
                if self._asked:
                    # who goes early has still had the model work
                    self._spend()
                if not self._session.is_over:
                    raise
                self.task.uncancel()
                await self._fail(over_error())
            finally:
                if contract is not None:
                    contract.ended(self._call.number)
                trace = self._trace()
                self._session.keep(trace)
                if finished is not None:
                    finished(trace)
                await self._let_go()

    async def _let_go(self) -> None:
        """Let go of the answer; of a stream that has said its last, the connection is worth a moment's wait."""
        if self._answer is None:
            return
        try:
            if self._rest is not None:
                with contextlib.suppress(TimeoutError, UpstreamError):
                    async with asyncio.timeout(END_OF_STREAM_S):
                        async for data in self._rest:
                            self._count(data)
        finally:
            await self._answer.aclose()

    async def _pass_on(self) -> None:
        lowered = self._session.admit(self._call)
        sent = self._sent(lowered)
        self._asked = True
        answer = self._answer = await self._session.upstream.send(sent)
        if answer.status not in _FINAL:
            raise UpstreamError(f"the model's server answered with status {answer.status}.", code="upstream_invalid")
        if answer.status == 401:
            # its text may quote a part of the credential
            raise UpstreamError(
                "the model's server refused the caller's credential.", code="credential_failed", status=401
            )
        told = next((value for name, value in answer.headers if name.lower() == "content-type"), "")
        self._type = self._clean(told)
        if self._type.partition(";")[0].strip().lower() == EVENTS:
            await self._stream(answer)
        else:
            await self._whole(answer)

    def _sent(self, lowered: dict[str, int]) -> ModelCall:
        """Return the call as it is sent: from the document that was judged, with what the budget changes."""
        call = self._call
        if not isinstance(call.document, dict) or not is_known(call.route):
            # of another API, which may have been signed as it stands
            return call
        document: dict[str, Any] = {**call.document, **lowered}
        if is_chat(call.route) and document.get("stream") is True and self._session.budget.counts_tokens:
            options = document.get("stream_options")
            options = options if isinstance(options, dict) else {}
            if options.get("include_usage") is not True:
                self._asks_usage = True
                document["stream_options"] = {**options, "include_usage": True}
        try:
            body = write_json(document, like=call.body)
        except ValueError as error:
            raise RefusedError(f"the body cannot be sent on: {error}.") from error
        return replace(call, document=document, body=body)

    # -- whole answers ----------------------------------------------------------------------------------------

    async def _whole(self, answer: Answer) -> None:
        pieces = []
        async for data in answer.body():
            self._count(data)
            pieces.append(data)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        document = self._judged(answer.status, body)
        if document is None and answer.status >= 400 and is_known(self._call.route):
            body = self._page(answer.status, body)
            self._type = "application/json"
        elif self._first_byte is not None:
            body = self._cleaned(body)
        if answer.status < 400:
            self._usage = read_usage(document)
            self._spend()
            self._tell(answer_message(document))
        else:
            self._code = self._code_of(document)
        headers = self._headers(answer)
        headers.append((b"content-length", b"%d" % len(body)))
        self._keep(body)
        await self._client.answer(answer.status, headers, body)

    def _judged(self, status: int, body: bytes) -> object:
        """Return an answer's JSON; `None` for an error's, and for what need not be any, that is none.

        Raises:
            UpstreamError: it should be, and is not.
        """
        why = "it is no object"
        try:
            document = read_json(body) if is_chat(self._call.route) else read_outline(body)
        except ValueError as error:
            document, why = None, str(error)
        if isinstance(document, dict) or status >= 300 or not is_known(self._call.route):
            return document
        shown = body[:ERROR_CHARS].decode("utf-8", "replace")
        raise UpstreamError(
            f"the model's server answered {status} with something that is no JSON object ({why}): {shown!r}",
            code="upstream_invalid",
        )

    def _page(self, status: int, body: bytes) -> bytes:
        """Return a page that came instead of an error object, as one."""
        shown = " ".join(body[:ERROR_CHARS].decode("utf-8", "replace").split())
        error = UpstreamError(
            self._clean(f"the model's server answered {status}: {shown or 'nothing'}"),
            code="upstream_invalid",
            status=status,
        )
        return error_body(error)

    # -- streams ----------------------------------------------------------------------------------------------

    async def _stream(self, answer: Answer) -> None:
        self._streamed = True
        client, events = self._client, EventStream()
        if self._session.contract is not None and is_chat(self._call.route):
            self._assembler = AnswerAssembler()
        await client.begin(answer.status, [*self._headers(answer), (b"cache-control", b"no-cache")])
        body = answer.body()
        async for data in body:
            self._count(data)
            whole = events.feed(data)
            if whole:
                await self._send_events(whole)
            if self._done:
                break
        rest = events.finish()
        if rest and not self._done:
            await self._send_events(rest)
        self._end()
        await client.finish()
        if self._done:
            self._rest = body

    async def _send_events(self, events: bytes) -> None:
        events = self._cleaned(self._read_events(events))
        if events:
            self._keep(events)
            await self._client.go_on(events)

    def _read_events(self, events: bytes) -> bytes:
        """Take in what events say; return those that the client is to have."""
        assembler = self._assembler
        if assembler is None and b'"usage"' not in events:
            if _DONE_LINE.search(events) is not None:
                self._done = True
                self._end()
            return events
        passed = []
        for event in split_events(events):
            data = event_data(event)
            chunk: object = None
            if data == _DONE:
                self._done = True
                self._end()
            elif data:
                try:
                    chunk = read_json(data)
                except ValueError:
                    # whether a client can read it is for the client to say
                    chunk = None
            if assembler is not None:
                assembler.feed(chunk)
                if assembler.finished:
                    self._tell(assembler.message)
            usage = read_usage(chunk)
            if usage is not None:
                self._usage = usage
                if self._asks_usage and isinstance(chunk, dict) and not chunk.get("choices"):
                    continue
            passed.append(event)
        return b"".join(passed)

    def _end(self) -> None:
        self._spend()
        self._tell(None if self._assembler is None else self._assembler.message)

    # -- both -------------------------------------------------------------------------------------------------

    def _count(self, data: bytes) -> None:
        if self._first_byte is None:
            self._first_byte = time.perf_counter() - self._started
        self._size += len(data)
        if self._size > self._limits.answer_bytes:
            raise UpstreamError(f"the answer has more than {self._limits.answer_bytes} bytes.", code="answer_too_large")

    def _spend(self) -> None:
        """Count what the answer took, as far as it has come; once."""
        if self._spent or self._call.method == "GET":
            return
        self._spent = True
        if self._usage is None:
            self._usage = estimated_usage(len(self._call.body), self._size)
        self._session.spend(self._call, self._usage)

    def _tell(self, message: object) -> None:
        """The answer is known: say so before the client has the last of it and goes on; once."""
        contract = self._session.contract
        if not self._told and contract is not None and is_chat(self._call.route):
            self._told = True
            contract.answered(self._call.number, message)

    async def _fail(self, error: UpstreamError) -> None:
        self._code = error.code
        error.message = self._clean(error.message)
        if self._streamed:
            # what came before it broke was made, and is paid for
            self._spend()
        self._keep(await self._client.fail(error))

    def _cleaned(self, data: bytes) -> bytes:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
            clean = self._clean(text)
            return data if clean == text else clean.encode("latin-1", "replace")
        clean = self._clean(text)
        return data if clean is text or clean == text else clean.encode("utf-8")

    def _code_of(self, document: object) -> str | None:
        error = document.get("error") if isinstance(document, dict) else None
        code = error.get("code") if isinstance(error, dict) else None
        return None if code is None else self._clean(str(code))[:ERROR_CHARS]

    def _headers(self, answer: Answer) -> Headers:
        pairs = [(name.lower(), self._clean(value)) for name, value in answer.headers]
        headers = [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs if name not in _OWN
        ]
        if self._type:
            headers.append((b"content-type", self._type.encode("latin-1", "replace")))
        return headers

    def _keep(self, data: bytes) -> None:
        if self._room >= len(data):
            self._kept.append(data)
        elif self._room > 0:
            self._kept.append(data[: self._room])
        self._room -= len(data)

    def _trace(self) -> CallTrace:
        call, most = self._call, self._limits.trace_bytes
        omitted = max(0, len(call.body) - most) + max(0, -self._room)
        if len(call.body) > most:
            call = replace(call, body=call.body[:most])
        return CallTrace(
            call=call,
            began=self._began,
            seconds=time.perf_counter() - self._started,
            first_byte_s=self._first_byte,
            status=self._client.status,
            answer=b"".join(self._kept),
            answer_type=self._type or "application/json",
            omitted_bytes=omitted,
            streamed=self._streamed,
            usage=self._usage,
            error=self._code,
        )
