"""Exceptions as bounded plain text, whatever the exception does when it is looked at."""

from __future__ import annotations

import traceback

from ..errors import RunnerError
from ..limits import MAX_ID_CHARS, MAX_TEXT_CHARS, MAX_TRACEBACK_CHARS
from ..protocol import RemoteFailure
from ..text import bounded


def describe(error: BaseException) -> RemoteFailure:
    """Turn an exception into text that can cross. Never raises."""
    return RemoteFailure(
        type=bounded(type_name(error), MAX_ID_CHARS),
        message=bounded(text_of(error), MAX_TEXT_CHARS),
        traceback=bounded(_traceback(error), MAX_TRACEBACK_CHARS),
    )


def type_name(error: BaseException) -> str:
    """Qualified name of the exception's type; built-in ones without their module."""
    kind = type(error)
    try:
        module = getattr(kind, "__module__", None)
        name = str(kind.__qualname__) or "Exception"
        # what is ours is loaded under a name of this process's own
        return name if module in (None, "builtins", "__main__", RunnerError.__module__) else f"{module}.{name}"
    except BaseException:  # noqa: BLE001 - a metaclass may answer for the names
        return "Exception"


def text_of(error: BaseException) -> str:
    """The exception's text, or what went wrong when it was asked for."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - whatever its __str__ raises, SystemExit too
        return f"<text not available: its __str__ raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.TracebackException.from_exception(error, limit=-200).format())
    except BaseException as broken:  # noqa: BLE001 - an author's class may break the formatting of its own traceback
        return f"<traceback not available: formatting raised {type(broken).__name__}>"
