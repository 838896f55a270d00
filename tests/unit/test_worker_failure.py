"""An exception becomes bounded text, whatever it does when it is looked at."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.limits import MAX_ID_CHARS, MAX_TEXT_CHARS, MAX_TRACEBACK_CHARS
from runner.protocol import CallFailed, RemoteFailure, encode
from runner.worker.failure import describe


def described(error: BaseException) -> RemoteFailure:
    try:
        raise error
    except BaseException as caught:
        failure = describe(caught)
    encode(CallFailed(call=1, failure=failure))
    assert len(failure.type) <= MAX_ID_CHARS
    assert len(failure.message) <= MAX_TEXT_CHARS
    assert len(failure.traceback) <= MAX_TRACEBACK_CHARS
    return failure


class OfAModule(Exception):
    pass


class Text(str):
    def __len__(self) -> int:
        raise RuntimeError("asked")


def broken(raised: BaseException) -> type[Exception]:
    class Broken(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    return Broken


class OddNames(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__name__"):
            raise SystemExit("asked")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=OddNames):
    pass


def test_type_message_and_traceback_are_told() -> None:
    failure = described(ValueError("no such colour"))
    assert failure.type == "ValueError"
    assert failure.message == "no such colour"
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert failure.traceback.endswith("ValueError: no such colour\n")


def test_the_type_of_a_module_is_told_with_it() -> None:
    assert described(OfAModule()).type == f"{__name__}.OfAModule"


def test_causes_notes_and_groups_are_in_the_traceback() -> None:
    error = RuntimeError("after")
    error.__cause__ = KeyError("before")
    error.add_note("a note")
    failure = described(error)
    assert "KeyError: 'before'" in failure.traceback
    assert "a note" in failure.traceback
    assert "ExceptionGroup" in described(ExceptionGroup("two", [ValueError("x"), TypeError("y")])).traceback


@pytest.mark.parametrize("raised", [RuntimeError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_exception_that_raises_when_asked_for_its_text_is_told_all_the_same(raised: BaseException) -> None:
    failure = described(broken(raised)())
    assert failure.message == f"<text not available: its __str__ raised {type(raised).__name__}>"
    assert failure.type.endswith("Broken")


def test_an_exception_whose_class_raises_when_asked_for_its_name_is_told_all_the_same() -> None:
    assert described(Nameless("x")).type == "Exception"
    assert described(Nameless("x")).message == "x"


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("x" * 50_000_000, "xxx"),
        ("\ud800 lone", "\\ud800 lone"),
        ("\x1b[31mred\x00\r\n", "\x1b[31mred"),
        (Text("a subclass"), "a subclass"),
        ("", ""),
    ],
    ids=["huge", "surrogate", "control characters", "subclass", "empty"],
)
def test_any_text_crosses_bounded(text: Any, starts: str) -> None:
    assert described(ValueError(text)).message.startswith(starts)


def test_an_endless_recursion_is_bounded() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    failure = describe(caught.value)
    assert failure.type == "RecursionError"
    assert len(failure.traceback) <= MAX_TRACEBACK_CHARS


def test_a_chain_of_exceptions_in_a_circle_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    assert describe(first).message == "first"
