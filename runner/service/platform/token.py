"""The login of the published client: what it holds as its session is the key itself, and so is the token for it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from runner.service.http.access import ModelUser
from runner.service.http.errors import HttpError


def router() -> APIRouter:
    """Return the route."""
    # described by whoever made its client
    made = APIRouter(include_in_schema=False)

    @made.get("/api/auth/token")
    async def token(request: Request, caller: ModelUser) -> dict[str, str]:
        """Give the key that was shown, which is known to be good."""
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            # a browser's session is no key
            raise HttpError(401, "missing-key", "the request has no key.", "Send one as `Authorization: Bearer …`.")
        return {"token": shown.strip()}

    return made
