"""The page of keys: the one that is signed in with, and, for whoever may, all of the tenant's."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Path, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from runner.service.client.wire import ID_PATTERN, CreatedKey, NewKey, NewQuotas, Scope
from runner.service.http import key_routes as api
from runner.service.http.errors import HttpError
from runner.service.web.rendering import render
from runner.service.web.routes import PageRoute
from runner.service.web.visiting import AdminVisitor, AnyVisitor, Form, Visitor, form_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

SCOPES: Final[dict[Scope, str]] = {
    "submit": "upload, begin, cancel and delete validations",
    "read": "look at validations",
    "models": "ask the service's models",
    "admin": "make and revoke keys, and see who did what",
}
assert SCOPES.keys() == set(get_args(Scope))

MIB: Final = 1 << 20
DAY_S: Final = 86_400.0


@router.get("/keys")
async def get_keys(visitor: AnyVisitor, request: Request) -> Response:
    """Show the key, what it uses of its quotas, and the tenant's other keys."""
    return await _page(request, visitor)


@router.post("/keys")
async def create_key(visitor: AdminVisitor, request: Request) -> Response:
    """Make a key, and show its secret: in this answer and nowhere else."""
    form = form_of(request)
    try:
        made = await api.create_key(_asked(form), visitor.caller, request)
    except ValueError as error:
        return await _page(request, visitor, form=form, problem=_problem(error))
    except HttpError as error:
        if error.code not in ("missing-scope", "beyond-quota"):
            raise
        return await _page(request, visitor, form=form, problem=error.message)
    return await _page(request, visitor, made=made)


@router.post("/keys/{key_id}/revoke")
async def revoke_key(
    key_id: Annotated[str, Path(pattern=ID_PATTERN)], visitor: AdminVisitor, request: Request
) -> Response:
    """Have a key not be accepted any more."""
    await api.revoke_key(key_id, visitor.caller, request)
    return RedirectResponse("/keys", 303)


async def _page(
    request: Request,
    visitor: Visitor,
    *,
    made: CreatedKey | None = None,
    form: Form | None = None,
    problem: str = "",
) -> Response:
    me = await api.get_me(visitor.caller, request)
    listed = await api.list_keys(visitor.caller, request) if visitor.may("admin") else None
    return render(
        request,
        "keys.html",
        visitor=visitor,
        status=422 if problem else 200,
        me=me,
        meters=(
            ("Uploads kept", me.usage.bytes, me.key.quotas.max_bytes, True),
            ("Validations that are not over", me.usage.jobs, me.key.quotas.max_jobs, False),
            ("Validations that run", me.usage.running, me.key.quotas.max_running, False),
        ),
        keys=[] if listed is None else listed.items,
        scopes={scope: text for scope, text in SCOPES.items() if visitor.may(scope)},
        form=form or Form({"scopes": ["submit", "read"]}),
        made=made,
        problem=problem,
    )


def _asked(form: Form) -> NewKey:
    """Turn a form into what the API takes.

    Raises:
        ValueError: a number is none, or something is not as it may be.
    """
    days, mib = _number(form, "days"), _number(form, "mib")
    quotas: dict[str, Any] = {
        name: None if (value := _number(form, name)) is None else int(value)
        for name in ("max_jobs", "max_running", "requests_per_minute")
    }
    return NewKey.model_validate(
        {
            "name": form.one("name").strip(),
            "scopes": form.all("scopes"),
            "expires_in_s": None if days is None else days * DAY_S,
            "quotas": NewQuotas(max_bytes=None if mib is None else int(mib * MIB), **quotas),
        }
    )


def _number(form: Form, name: str) -> float | None:
    text = form.one(name).strip()
    if not text:
        return None
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}: {text[:40]} is no number that it may be")
    return value


def _problem(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}."
    return f"{error}."
