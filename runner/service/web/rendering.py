"""Pages made of templates. Text becomes part of a page in one way: escaped, and with what hides or reorders it shown.

A page may load what this service serves and nothing else, and no script that stands in it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from runner.report.page.figures import counted, duration, number
from runner.report.page.validation import SIGNS, WORDS
from runner.service.client.wire import OVER, Validation
from runner.service.http.errors import HttpError
from runner.service.web.assets import STYLE, assets
from runner.service.web.visiting import Visitor
from runner.text import one_line, printable

TEMPLATES: Final = Path(__file__).parent / "templates"

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    )
)

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    # with `no-referrer` a browser would not say of a form where it comes from
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Of every page, beside those of every answer."""

THEME_COOKIE: Final = "benchmax_theme"
THEMES: Final = frozenset({"light", "dark"})

MAX_TEXT: Final = 1_000
"""Characters of one text of a finding or a check; the report and the JSON have them all."""

SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def render(
    request: Request,
    template: str,
    *,
    visitor: Visitor | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **shown: Any,
) -> HTMLResponse:
    """Return a page.

    Args:
        request: What is answered.
        template: The name of its template.
        visitor: Who sees it; `None` for nobody who has signed in.
        status: The answer's.
        headers: More for the answer.
        shown: What the template shows.
    """
    theme = request.cookies.get(THEME_COOKIE)
    page = _environment().get_template(template)
    text = page.render(visitor=visitor, path=request.url.path, theme=theme if theme in THEMES else "", **shown)
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})


def render_error(request: Request, error: HttpError, request_id: str, *, visitor: Visitor | None) -> HTMLResponse:
    """Return an error as a page."""
    return render(
        request,
        "error.html",
        visitor=visitor,
        status=error.status_code,
        headers=error.headers,
        error=error,
        phrase=HTTPStatus(error.status_code).phrase,
        request_id=request_id,
    )


def word_of(validation: Validation) -> tuple[str, str]:
    """Return what the state of a validation is called, and how it looks."""
    if validation.judgement is not None:
        return WORDS[validation.judgement]
    if validation.cancelling:
        return "Stopping", "waits"
    return {
        "queued": ("Waiting", "waits"),
        "running": ("Running", "runs"),
        "failed": ("Failed", "bad"),
        "cancelled": ("Cancelled", "open"),
        "done": ("Done", "open"),
    }[validation.state]


def size(count: int) -> str:
    """Show a number of bytes."""
    for least, unit in SIZES:
        if count >= least:
            return f"{number(count / least)} {unit}"
    return counted(count, "byte")


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        # of everything that is put into a template, before it is escaped
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        line=one_line, bounded=_bounded, moment=_moment, duration=duration, size=size, word=word_of, figure=_figure
    )
    made.globals.update(
        asset=assets().address, style=STYLE, scripts=assets().scripts, counted=counted, over=OVER, signs=SIGNS
    )
    return made


def _visible(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _figure(value: float | None) -> str:
    return "–" if value is None else number(value)


def _moment(seconds: float | None) -> Markup | str:
    if seconds is None:
        return "–"
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S}")
