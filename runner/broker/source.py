"""Asks a credential source for headers, and checks that what it gives can be sent.

Comes in: any object with a `headers_for_request`. Goes out: headers as plain text, or one typed error. An asynchronous
source runs on the caller's own event loop, as it would in process; one that may block runs in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from benchmax.auth import ModelAuth, ModelRequestContext, StaticBearerAuth
from runner.broker.threads import ThreadCrew
from runner.errors import CredentialSourceError
from runner.limits import MAX_HEADER_BYTES

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SEPARATORS: Final = 4
"""Bytes that every header takes besides its name and value."""

MAX_STATIC: Final = 256
"""Tokens whose headers are kept, checked: more than a run has that are asked for again and again."""

WHOSE: Final = "the caller's credential source"


class StaticHeaders:
    """The headers of sources that need not be asked, as their answer is known: `StaticBearerAuth`."""

    def __init__(self) -> None:
        self._by_token: dict[str, dict[str, str]] = {}

    def of(self, auth: ModelAuth) -> dict[str, str] | None:
        """Return a source's headers; `None` of one that has to be asked.

        Raises:
            CredentialSourceError: the token cannot be sent.
        """
        if type(auth) is not StaticBearerAuth:
            return None
        headers = self._by_token.get(auth.token)
        if headers is None:
            headers = sendable({"Authorization": f"Bearer {auth.token}"})
            if len(self._by_token) >= MAX_STATIC:
                self._by_token.clear()
            self._by_token[auth.token] = headers
        return headers


async def ask_source(
    auth: ModelAuth, context: ModelRequestContext, crew: ThreadCrew, *, blocking: bool
) -> dict[str, str]:
    """Ask a source; whatever is wrong with it or its answer, the error says so.

    Args:
        auth: The source.
        context: What it is told.
        crew: Calls it where it may block.
        blocking: Whether it may although it is asynchronous, so that it gets an event loop of its own.

    Raises:
        CredentialSourceError: it raised, is none, or its headers cannot be sent.
    """
    headers = await _call(auth, "headers_for_request", (context,), crew, blocking=blocking)
    return sendable(headers, type(auth).__name__)


async def tell_rejected(
    auth: ModelAuth, context: ModelRequestContext, headers: Mapping[str, str], crew: ThreadCrew, *, blocking: bool
) -> bool:
    """Tell a source that a server refused its headers; return whether it is one that wants to know.

    Args:
        auth: The source; one that wants to know has a method `rejected`.
        context: The request, as the source was told it.
        headers: What it gave for that.
        crew: Calls it where it may block.
        blocking: As for `ask_source`.

    Raises:
        CredentialSourceError: it raised.
    """
    if not callable(getattr(auth, "rejected", None)):
        return False
    await _call(auth, "rejected", (context, headers), crew, blocking=blocking)
    return True


async def _call(auth: ModelAuth, name: str, arguments: tuple[object, ...], crew: ThreadCrew, *, blocking: bool) -> Any:
    try:
        method: Any = getattr(auth, name)
        if not callable(method):
            raise TypeError(f"{name} is no method")
        if blocking:
            return await crew.run(partial(_call_blocking, method, arguments))
        if _is_asynchronous(method):
            return await method(*arguments)
        result = await crew.run(partial(method, *arguments))
        # a plain function around an asynchronous one
        return await result if inspect.isawaitable(result) else result
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a source may raise anything, and is answered for
        # its text is for the caller alone: it may quote the request that was to fetch the credential
        raise CredentialSourceError(
            f"{WHOSE} raised {type(error).__name__}.", hint="The header audit has its text.", detail=_text_of(error)
        ) from None


def sendable(headers: object, source: str = "StaticBearerAuth") -> dict[str, str]:
    """Check headers and make them plain strings; what a subclass of `str` adds would not cross.

    Raises:
        CredentialSourceError: they are no mapping of text to text, cannot stand in a request, or are too large. The
            text names the header and quotes no value.
    """
    if not isinstance(headers, Mapping):
        raise _no_mapping(source)
    plain: dict[str, str] = {}
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _no_mapping(source)
        name, value = str.__str__(name), str.__str__(value)
        if _NAME.fullmatch(name) is None:
            raise CredentialSourceError(f"{source} gave a header whose name is none.")
        if _CONTROL.search(value) is not None:
            raise CredentialSourceError(
                f"{source} gave a {name} with a line break or another control character.",
                hint="Strip what was read from a file.",
            )
        try:
            size += len(name) + len(value.encode("latin-1")) + _SEPARATORS
        except UnicodeEncodeError:
            # the error's own text and object would quote the value
            raise CredentialSourceError(f"{source} gave a {name} with characters that no header can carry.") from None
        plain[name] = value
    if size > MAX_HEADER_BYTES:
        raise CredentialSourceError(f"{source} gave {size} bytes of headers, the limit is {MAX_HEADER_BYTES}.")
    return plain


def _call_blocking(method: Any, arguments: tuple[object, ...]) -> object:
    async def call() -> object:
        result = method(*arguments)
        return await result if inspect.isawaitable(result) else result

    return asyncio.run(call())


def _no_mapping(source: str) -> CredentialSourceError:
    return CredentialSourceError(f"{source}.headers_for_request must return a mapping of str to str.")


def _is_asynchronous(method: Any) -> bool:
    # the second is that of an object with an asynchronous `__call__`
    return inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(type(method).__call__)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a request has to be answered whatever a source's error does
        return f"{type(broken).__name__} while its text was asked for"
