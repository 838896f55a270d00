"""What a person with a browser sees of the service: pages made here, with a little script that they do without.

Pages show what the REST API answers, by the same functions, and the script reads the same addresses as the client does.
"""

from __future__ import annotations

from fastapi import APIRouter

from runner.service.web import (
    assets,
    audit_pages,
    compare_pages,
    key_pages,
    session_pages,
    validation_pages,
)


def router() -> APIRouter:
    """Return the routes of all pages."""
    whole = APIRouter(include_in_schema=False)
    for part in (assets, session_pages, validation_pages, compare_pages, key_pages, audit_pages):
        whole.include_router(part.router)
    return whole
