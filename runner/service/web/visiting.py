"""Who looks at a page: a browser that has signed in with a key, and shows the cookie of its session.

What changes something is asked by forms. A form has a token that only pages of the same session have, and is let
through only when the browser says that it comes from the service's own page.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.responses import Response

from runner.service.client.wire import Scope
from runner.service.http.access import Allowed, Caller, cookie_name, denied
from runner.service.http.errors import HttpError
from runner.service.http.exchange import exchange_of

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

NOT_SIGNED_IN: Final = "not-signed-in"
MAX_FIELDS: Final = 100
FORM_TYPE: Final = "application/x-www-form-urlencoded"

_INSIDE: Final = re.compile(r"/(?:validations|compare|keys|audit)(?:[/?][A-Za-z0-9/_?=&%.~+-]*)?")
"""Where somebody may be led after signing in: the service's own pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who looks at a page.

    Args:
        caller: Whose key it is.
        token: The session's.
        seal: What forms of the session's pages carry.
    """

    caller: Caller
    token: str
    seal: str

    def may(self, scope: Scope) -> bool:
        """Return whether the key has a scope."""
        return scope in self.caller.key.scopes


class SignedIn:
    """Lets those through who have signed in with a key that has a scope; a dependency of pages.

    Args:
        scope: Which; `None` for any key.
    """

    def __init__(self, scope: Scope | None) -> None:
        self._allowed = Allowed(scope)

    async def __call__(self, request: Request) -> Visitor:
        """Return who looks.

        Raises:
            HttpError: nobody who may, or a form that is not of the session's own pages.
        """
        state: ServiceState = request.app.state.service
        token = request.cookies.get(cookie_name(state))
        if token is None:
            # nobody has tried anything yet
            raise HttpError(401, NOT_SIGNED_IN, "nobody has signed in here.")
        caller = await self._allowed(request)
        visitor = Visitor(caller=caller, token=token, seal=_seal(state, token))
        request.state.visitor = visitor
        if request.method == "POST":
            form = await read_form(request)
            request.state.form = form
            if not hmac.compare_digest(form.one("seal").encode(), visitor.seal.encode()):
                error = HttpError(403, "foreign-form", "the form is not one of this session.", "Load the page again.")
                await denied(state, exchange_of(request), error.code, key=caller.key)
                raise error
        return visitor


AnyVisitor = Annotated[Visitor, Depends(SignedIn(None))]
ReadingVisitor = Annotated[Visitor, Depends(SignedIn("read"))]
SubmittingVisitor = Annotated[Visitor, Depends(SignedIn("submit"))]
AdminVisitor = Annotated[Visitor, Depends(SignedIn("admin"))]


@dataclass(frozen=True, slots=True)
class Form:
    """What somebody has filled in; a name may be there more than once."""

    fields: dict[str, list[str]]

    def one(self, name: str) -> str:
        """Return the first value of a name; empty for none."""
        return self.fields.get(name, [""])[0]

    def all(self, name: str) -> list[str]:
        """Return the values of a name."""
        return self.fields.get(name, [])


def form_of(request: Request) -> Form:
    """Return the form that came with a request, which a dependency has read and let through."""
    form = request.state.form
    assert isinstance(form, Form)
    return form


async def read_form(request: Request) -> Form:
    """Read a form, whose size is bounded as that of every request.

    Raises:
        HttpError: it is none.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise HttpError(422, "invalid-request", "the request is no form.")
    try:
        text = (await request.body()).decode("utf-8")
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise HttpError(422, "invalid-request", "the form cannot be read.") from None


def keep_session(state: ServiceState, response: Response, token: str | None, *, lifetime_s: int = 0) -> None:
    """Have a browser keep a session's token, or forget it."""
    secure = state.settings.public_url.startswith("https:")
    response.set_cookie(
        cookie_name(state),
        token or "",
        max_age=lifetime_s if token is not None else 0,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def inside(address: str) -> str:
    """Return where to go after signing in: an address as it was given if it is a page's, else the first page."""
    return address if _INSIDE.fullmatch(address) else "/validations"


def _seal(state: ServiceState, token: str) -> str:
    return hmac.new(state.signing_key, f"form\n{token}".encode(), hashlib.sha256).hexdigest()
