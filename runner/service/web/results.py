"""What has come of a validation, read for pages."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.responses import StreamingResponse

from runner.service.http import validations as api
from runner.service.http.access import Caller

MAX_BYTES: Final = 32 << 20
"""Of a verdict's JSON that a page reads: it holds the whole first pass. What is larger has its report all the same."""


async def verdict_json(validation_id: str, caller: Caller, request: Request) -> bytes | None:
    """Return a verdict's JSON; `None` for one that is too large to be read here.

    Raises:
        HttpError: there is no such validation, or no verdict on it.
    """
    answer = await api.get_verdict(validation_id, caller, request)
    assert isinstance(answer, StreamingResponse)
    if int(answer.headers["content-length"]) > MAX_BYTES:
        return None
    return b"".join([_bytes(piece) async for piece in answer.body_iterator])


def _bytes(piece: str | bytes | memoryview) -> bytes:
    assert isinstance(piece, bytes)
    return piece
