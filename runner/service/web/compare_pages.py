"""The page of two validations side by side."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from runner.service.client.wire import ID_PATTERN, Validation
from runner.service.http import validations as api
from runner.service.http.access import Caller
from runner.service.http.errors import HttpError
from runner.service.web.comparing import compared
from runner.service.web.rendering import render
from runner.service.web.results import verdict_json
from runner.service.web.routes import PageRoute
from runner.service.web.visiting import ReadingVisitor
from runner.validation import Verdict

router = APIRouter(include_in_schema=False, route_class=PageRoute)

TWO: Final = 2

_at_once = asyncio.Semaphore(2)
"""Comparisons hold two whole runs in memory each."""

OneOf = Annotated[str, Query(pattern=ID_PATTERN)]


@router.get("/compare")
async def get_comparison(
    visitor: ReadingVisitor, request: Request, of: Annotated[list[OneOf] | None, Query(max_length=50)] = None
) -> Response:
    """Compare two validations, the older one first."""
    chosen = [*dict.fromkeys(of or [])]
    if len(chosen) != TWO:
        return render(request, "compare.html", visitor=visitor, chosen=len(chosen), sides=None, found=None)
    sides = [await api.get_validation(one, visitor.caller, request) for one in chosen]
    sides.sort(key=lambda one: (one.created_at, one.id))
    async with _at_once:
        verdicts = [await _verdict(side, visitor.caller, request) for side in sides]
        found = await asyncio.to_thread(compared, *verdicts)
    return render(
        request, "compare.html", visitor=visitor, chosen=TWO, sides=[*zip(sides, verdicts, strict=True)], found=found
    )


async def _verdict(validation: Validation, caller: Caller, request: Request) -> Verdict:
    if not validation.has_verdict:
        raise HttpError(409, "no-verdict", f"there is no verdict on {validation.name}.", "Compare two that have one.")
    data = await verdict_json(validation.id, caller, request)
    if data is None:
        raise HttpError(413, "too-large", f"the verdict on {validation.name} is too large to be compared here.")
    return await asyncio.to_thread(Verdict.from_json, data)
