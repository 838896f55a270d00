"""Parts of a request, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from runner.trials.inside.stream import RequestError

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "exec": ("command", "cwd", "env", "user", "timeout_s", "merge"),
    "cancel": ("of",),
    "put": ("path", "kind", "mode", "owner"),
    "get": ("path", "kind"),
    "stat": ("path",),
}
"""What can be asked for, and the fields beside `op` and `id` that such a request may have."""

KINDS: Final = ("file", "tar")


def check_fields(request: dict[str, Any]) -> str:
    """Return what is asked for; refuses what is not known, so that nothing is passed over in silence."""
    operation = text_of(request, "op")
    if operation not in FIELDS:
        raise RequestError("invalid", f"{operation!r:.100} is nothing that can be asked for.")
    unknown = request.keys() - {"op", "id", *FIELDS[operation]}
    if unknown:
        raise RequestError("invalid", f"{operation} has no field {min(unknown)!r:.100}.")
    return operation


def kind_of(request: dict[str, Any]) -> str:
    """Return the field `kind`: one file, or a folder as an archive."""
    kind = text_of(request, "kind")
    if kind not in KINDS:
        raise RequestError("invalid", f"kind is {kind!r:.100}, and can be one of {', '.join(KINDS)}.")
    return kind


def text_of(request: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a field that is a text; one that may be left out has a default."""
    value = request.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise RequestError("invalid", f"{name} is not a text.")
    return value


def path_of(request: dict[str, Any]) -> str:
    """Return the field `path`, absolute and without detours."""
    path = text_of(request, "path")
    if not path.startswith("/") or "\0" in path:
        raise RequestError("invalid", f"{path[:200]!r} is not an absolute path.")
    return os.path.normpath(path)


def user_of(value: object) -> str | int | None:
    """Return a user's name or number, or `None` for root."""
    if value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise RequestError("invalid", f"{value!r:.100} is no user.")
