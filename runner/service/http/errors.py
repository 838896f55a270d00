"""Errors as HTTP tells them: one shape for the REST API, and for what other clients speak theirs.

{"error": {"code", "message", "hint"}, "request_id"}          /api/v1, and everything that is not below
{"error": {"message", "type", "param", "code"}}               what OpenAI's clients ask
{"error": "message"}                                          the rest of the platform
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as PlainHttpException
from starlette.responses import JSONResponse, Response

from runner.errors import ConflictError, DatabaseError, QuotaError
from runner.service.blobs.store import BlobError, BlobMissingError, StoreUnavailableError
from runner.service.client.wire import ErrorAnswer, ErrorFacts
from runner.text import one_line

OPENAI_PATHS: Final = ("/v1/chat/", "/v1/embeddings", "/v1/models", "/v1/sessions/", "/sessions/")
PLATFORM_PATHS: Final = ("/v1/", "/api/auth/")


class HttpError(HTTPException):
    """Raised where a request is answered with an error.

    Args:
        status: The answer's status.
        code: Stable and unique; clients match on it.
        message: What failed and the fact behind it.
        hint: What to do next; empty where there is nothing useful to say.
        retry_after_s: When to come back; `None` where that is of no use.
        headers: More for the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        more = dict(headers or {})
        if retry_after_s is not None:
            more["Retry-After"] = str(max(1, round(retry_after_s + 0.5)))
        super().__init__(status, message, more)
        self.code = code
        self.message = message
        self.hint = hint


def not_found(what: str) -> HttpError:
    """Return the error for something that is not there, or is somebody else's: nobody may learn which."""
    return HttpError(404, "not-found", f"there is no {what}.")


def busy(what: str) -> HttpError:
    """Return the error for a server that has as much to do as it takes on."""
    return HttpError(503, "busy", f"the service has too many {what} under way.", "Ask again soon.", retry_after_s=1)


def as_http(error: BaseException) -> HttpError | None:
    """Return what an error that is known means to a client; `None` for one that is a mistake of the service's own."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, RequestValidationError):
        return HttpError(422, "invalid-request", _first_problem(error.errors()), "The schema is at /openapi.json.")
    if isinstance(error, PlainHttpException):
        return _of_framework(error.status_code, str(error.detail), error.headers)
    if isinstance(error, QuotaError):
        if error.which == "jobs":
            return HttpError(429, "quota", error.message, error.hint, retry_after_s=10)
        return HttpError(409, "quota", error.message, error.hint)
    if isinstance(error, ConflictError):
        return HttpError(409, "conflict", error.message, error.hint)
    if isinstance(error, DatabaseError):
        return HttpError(503, "database-unavailable", "the database failed.", "Ask again soon.", retry_after_s=5)
    if isinstance(error, BlobMissingError):
        return HttpError(410, "gone", "the content is no longer kept.")
    if isinstance(error, StoreUnavailableError):
        return HttpError(503, "storage-unavailable", "the blob store failed.", "Ask again soon.", retry_after_s=5)
    if isinstance(error, BlobError):
        return HttpError(400, "bad-content", f"{error}.")
    return None


def internal() -> HttpError:
    """Return what a client is told of a mistake of the service's own: that it can be found in the log."""
    return HttpError(500, "internal", "the service failed.", "Tell its operator the request id.")


def error_response(error: HttpError, path: str, request_id: str) -> Response:
    """Return the answer, in the shape that clients of that path read."""
    return JSONResponse(error_body(error, path, request_id), error.status_code, error.headers)


def error_body(error: HttpError, path: str, request_id: str) -> dict[str, Any]:
    """Return the answer's body."""
    text = one_line(f"{error.message} {error.hint}".strip(), 1000)
    if path.startswith(OPENAI_PATHS):
        kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
        code = error.code.replace("-", "_")
        return {"error": {"message": text, "type": kind, "param": None, "code": code}, "request_id": request_id}
    if path.startswith(PLATFORM_PATHS):
        return {"error": text, "request_id": request_id}
    facts = ErrorFacts(code=error.code, message=one_line(error.message, 1000), hint=error.hint)
    return ErrorAnswer(error=facts, request_id=request_id).model_dump()


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what the API's description says of a route's errors, those that every route may give included."""
    everywhere = (400, 408, 413, 429, 431, 500, 503)
    return {
        status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase}
        for status in sorted({*everywhere, *statuses})
    }


def _of_framework(status: int, detail: str, headers: Mapping[str, str] | None) -> HttpError:
    known = {
        404: ("not-found", "there is nothing at this path.", "What there is is listed at /openapi.json."),
        405: ("method-not-allowed", "the method is not allowed at this path.", ""),
        400: ("bad-request", "the body of the request cannot be read.", "It must be JSON."),
    }
    code, message, hint = known.get(status, ("bad-request", detail, ""))
    return HttpError(status, code, message, hint, headers=headers)


def _first_problem(problems: Sequence[Any]) -> str:
    """Say what is wrong first, and where; never what was sent, which may be a secret in the wrong place."""
    first = problems[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}."
