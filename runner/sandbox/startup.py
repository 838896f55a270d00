"""What the standard library has as well, without all that this loads: a supervisor stands in the way of every start.

`json` loads `re`, that `enum` and `functools`; `contextlib` loads `collections`, and `signal` `enum` again: together
half of the time from a supervisor's first instruction to its command. Below each is a part in C that loads nothing.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    # the same functions and numbers
    import _signal as signal

__all__ = ["read_json", "signal", "suppress", "write_json"]


class suppress:  # noqa: N801 - as in the standard library
    """A context in which these exceptions end the block, and nothing else."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Say whether what was raised is one of them."""
        return kind is not None and issubclass(kind, self._kinds)


class _Plain:
    """How JSON is read: as `json.loads` does without any option."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


# typeshed names the class that json has for this
_scan = _json.make_scanner(_Plain())  # type: ignore[arg-type]


def read_json(text: str) -> Any:
    """Read a JSON text without space around it.

    Raises:
        ValueError: it is none.
    """
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("not a JSON text") from None
    if end != len(text):
        raise ValueError("more than a JSON text")
    return value


def write_json(message: dict[str, Any]) -> str:
    """Write a message of numbers, truth values, texts and lists of these as JSON."""
    return f"{{{', '.join(f'{_json.encode_basestring_ascii(name)}: {_value(message[name])}' for name in message)}}}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return str(_json.encode_basestring_ascii(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
