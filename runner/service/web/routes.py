"""Routes of pages: whatever goes wrong is a page as well, and who has not signed in is asked to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from runner.service.http.errors import HttpError, as_http
from runner.service.http.exchange import exchange_of
from runner.service.web.rendering import render_error


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as raised:
                error = as_http(raised)
                if error is None:
                    raise
                return _page(request, error)

        return answered


def _page(request: Request, error: HttpError) -> Response:
    exchange = exchange_of(request)
    exchange.code = error.code
    if error.status_code == 401:
        wanted = request.url.path
        if request.url.query:
            wanted += f"?{request.url.query}"
        came_for = f"?next={quote(wanted, safe='')}" if request.method == "GET" and wanted != "/" else ""
        return RedirectResponse(f"/sign-in{came_for}", 303)
    return render_error(request, error, exchange.id, visitor=getattr(request.state, "visitor", None))
