"""Who asks, and whether they may: keys and their scopes, rates, and URLs that are signed for one upload.

A key is shown as bearer. A page that a browser has signed in to shows its session's cookie instead, and then whatever
changes something must come from the service's own pages. A signed URL needs neither, is good for one upload until its
time is over, and says nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlencode, urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Connection

from runner.service.client.wire import Scope
from runner.service.database import audit, keys, sessions
from runner.service.database.rows import KeyRow
from runner.service.http.errors import HttpError
from runner.service.http.exchange import Exchange, exchange_of

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

COOKIE: Final = "benchmax_session"
"""Of a browser that has signed in with a key; see `cookie_name`."""

UPLOAD_PATH: Final = "/api/v1/uploads/{upload_id}/content"
TOUCH_S: Final = 60.0
"""Between two notes that a key is used."""

_SAFE: Final = frozenset({"GET", "HEAD"})
_BEARER: Final = HTTPBearer(
    auto_error=False, scheme_name="key", description="An API key, as `benchmax keys create` shows it."
)
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks.

    Args:
        key: The key.
        request_id: In which request.
        address: From where.
    """

    key: KeyRow
    request_id: str
    address: str

    @property
    def tenant_id(self) -> str:
        """Whose key it is."""
        return self.key.tenant_id

    def audit(self, connection: Connection, action: str, object_id: str, *, detail: str = "") -> None:
        """Write down a change, in the transaction that makes it."""
        audit.write(
            connection,
            tenant_id=self.tenant_id,
            key_id=self.key.id,
            action=action,
            object=object_id,
            outcome="ok",
            request_id=self.request_id,
            address=self.address,
            detail=detail,
        )


class Allowed:
    """Lets those through whose key has a scope; a dependency of routes.

    Args:
        scope: Which; `None` for any key.
    """

    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope

    async def __call__(
        self, request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
    ) -> Caller:
        """Return who asks.

        Raises:
            HttpError: nobody who may.
        """
        state: ServiceState = request.app.state.service
        exchange = exchange_of(request)
        key = await self._key(state, request, shown)
        exchange.key_id, exchange.tenant_id = key.id, key.tenant_id
        wait = state.rates.take(key.id, key.requests_per_minute)
        if wait:
            raise HttpError(
                429,
                "too-many-requests",
                f"the key asks more often than {key.requests_per_minute} times per minute.",
                "Wait as long as Retry-After says.",
                retry_after_s=wait,
            )
        if self._scope is not None and self._scope not in key.scopes:
            error = HttpError(
                403,
                "missing-scope",
                f"the key {key.id} may not do this: it needs the scope {self._scope}.",
                "Ask who has given it for one that has.",
            )
            await denied(state, exchange, error.code, key=key)
            raise error
        await state.touch(key.id)
        return Caller(key=key, request_id=exchange.id, address=exchange.address)

    async def _key(self, state: ServiceState, request: Request, shown: HTTPAuthorizationCredentials | None) -> KeyRow:
        exchange = exchange_of(request)
        cookie = request.cookies.get(cookie_name(state))
        if shown is None and cookie is not None and "authorization" not in request.headers:
            if request.method not in _SAFE and not is_from_own_page(state, request):
                error = HttpError(403, "foreign-page", "the request comes from a page that is not the service's own.")
                await denied(state, exchange, error.code)
                raise error
            key = await state.database.read(sessions.find, cookie)
            what = "the browser's session is over."
        else:
            if shown is None:
                raise await _unauthorized(state, exchange, "missing-key", "the request has no key.")
            key = await state.database.read(keys.find, shown.credentials)
            what = "the key is not known, has expired or was revoked."
        if key is None:
            raise await _unauthorized(state, exchange, "unknown-key", what)
        return key


Anybody = Annotated[Caller, Depends(Allowed(None))]
Submitter = Annotated[Caller, Depends(Allowed("submit"))]
Reader = Annotated[Caller, Depends(Allowed("read"))]
ModelUser = Annotated[Caller, Depends(Allowed("models"))]
Administrator = Annotated[Caller, Depends(Allowed("admin"))]


async def denied(
    state: ServiceState, exchange: Exchange, code: str, *, key: KeyRow | None = None, object_id: str = ""
) -> None:
    """Count and write down an access that is denied.

    Raises:
        HttpError: there were too many from that address; what is refused for that is only counted.
    """
    state.metrics.denied.labels(code).inc()
    wait = state.denials.take(exchange.address, state.settings.limits.denied_per_minute)
    if wait:
        raise HttpError(429, "too-many-denied", "too many requests from this address were denied.", retry_after_s=wait)

    def write(connection: Connection) -> None:
        audit.write(
            connection,
            tenant_id=None if key is None else key.tenant_id,
            key_id=None if key is None else key.id,
            action="access",
            object=object_id or f"{exchange.method} {exchange.path[:200]}",
            outcome=code,
            request_id=exchange.id,
            address=exchange.address,
            detail="",
        )

    await state.database.run(write)


async def _unauthorized(state: ServiceState, exchange: Exchange, code: str, message: str) -> HttpError:
    await denied(state, exchange, code)
    return HttpError(
        401, code, message, "Send one as `Authorization: Bearer …`.", headers={"WWW-Authenticate": "Bearer"}
    )


def cookie_name(state: ServiceState) -> str:
    """Return the name of the cookie of a browser that has signed in; over TLS one that no other host can set."""
    return f"__Host-{COOKIE}" if state.settings.public_url.startswith("https:") else COOKIE


def is_from_own_page(state: ServiceState, request: Request) -> bool:
    """Return whether a browser says that one of the service's own pages asks; no page can say so that is not."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return False
    own = urlsplit(state.settings.public_url)
    return origin in (f"{own.scheme}://{own.netloc}", f"{request.url.scheme}://{request.headers.get('host', '')}")


# -- signed URLs ----------------------------------------------------------------------------------------------


def sign_upload(state: ServiceState, upload_id: str, expires_at: float) -> str:
    """Return a URL that takes one PUT with an upload's content, without any credential.

    Args:
        state: The service's parts.
        upload_id: The upload.
        expires_at: Until when, by the database's clock.
    """
    expires = str(math.ceil(expires_at))
    query = urlencode({"expires": expires, "signature": _signature(state.signing_key, upload_id, expires)})
    return f"{state.settings.public_url}{UPLOAD_PATH.format(upload_id=upload_id)}?{query}"


def check_signature(state: ServiceState, upload_id: str, expires: str, signature: str, *, now: float) -> None:
    """Let a signed URL through.

    Raises:
        HttpError: it was not made here for this upload, or its time is over.
    """
    good = _NUMBER.fullmatch(expires) and hmac.compare_digest(
        _signature(state.signing_key, upload_id, expires).encode(), signature.encode()
    )
    if not good:
        raise HttpError(403, "bad-signature", "the signature of the URL is not good for this upload.")
    if int(expires) < now:
        raise HttpError(403, "url-expired", "the URL is good no longer.", "Ask for a new one.")


def _signature(secret: bytes, upload_id: str, expires: str) -> str:
    return hmac.new(secret, f"upload\n{upload_id}\n{expires}".encode(), hashlib.sha256).hexdigest()


class Touched:
    """Which keys were noted as used, and when, so that it is written only now and then."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def is_due(self, key_id: str) -> bool:
        """Return whether a use is to be noted, and take it as noted."""
        now = time.monotonic()
        if now - self._at.get(key_id, -math.inf) < TOUCH_S:
            return False
        self._at[key_id] = now
        return True
