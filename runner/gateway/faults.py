"""What the gateway answers itself: errors in OpenAI's shape, so that any client library turns them into its own.

Comes in: why a call has no answer. Goes out: status, headers and body. A header says whether asking again can help,
which the common client libraries follow.
"""

from __future__ import annotations

import json
from typing import Final

from runner.gateway.exchange import UpstreamError

Headers = list[tuple[bytes, bytes]]

JSON_TYPE: Final = b"application/json"

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class RefusedError(UpstreamError):
    """The gateway does not send a call on.

    Args:
        message: One sentence for a person.
        code: What a program tells it by.
        status: HTTP status.
        param: The member of the request that it is about.
        retry: Whether asking again can help.
        allow: The methods that there are instead, for status 405.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid_request",
        status: int = 400,
        param: str | None = None,
        retry: bool = False,
        allow: str | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status, retry=retry)
        self.param = param
        self.allow = allow


def error_body(error: UpstreamError) -> bytes:
    """Return an error as OpenAI writes it."""
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    param = error.param if isinstance(error, RefusedError) else None
    fields = {"message": error.message, "type": kind, "param": param, "code": error.code}
    return json.dumps({"error": fields}, ensure_ascii=False).encode("utf-8", "replace")


def error_headers(error: UpstreamError, body: bytes) -> Headers:
    """Return the headers of an answer that is an error."""
    headers = [
        (b"content-type", JSON_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"x-should-retry", b"true" if error.retry else b"false"),
    ]
    if isinstance(error, RefusedError) and error.allow is not None:
        headers.append((b"allow", error.allow.encode("ascii")))
    return headers


def error_event(error: UpstreamError) -> bytes:
    """Return an error as an event of a stream that has begun already."""
    return b"data: " + error_body(error) + b"\n\n"
