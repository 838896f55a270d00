"""Terminal commands in every text that a pickle or its author's facts can hold: nothing of them reaches a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.inspecting import inspect_pickle, read_facts
from tests.hostile.assembling import call, group, name, pickle_of, text

NASTY = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\ud800\x00\r\x08\x7f\n"
CLOUD = "cloudpickle.cloudpickle"


def code_of(value: bytes) -> bytes:
    numbers = [b"K\x01", b"K\x00", b"K\x01", b"K\x02", b"K\x02", b"K\x0f", b"C\x00"]
    texts = [group(value), group(value), group(value, value), value, value, value]
    return call(
        call(name(CLOUD, "_builtin_type"), text("CodeType")), *numbers, *texts, b"K\x01", *[b"C\x00"] * 2, *[b")"] * 2
    )


def function_of(value: bytes) -> bytes:
    made = call(name(CLOUD, "_make_function"), code_of(value), b"}", value, group(value), b"N") + b"\x94"
    slots = b"}(" + b"".join(
        text(key) + content
        for key, content in {
            "__qualname__": value,
            "__module__": value,
            "__doc__": value,
            "__defaults__": group(value),
            "__kwdefaults__": b"}" + value + value + b"s",
            "__annotations__": b"}(" + value + value + text("return") + name("m" + NASTY, "n" + NASTY) + b"u",
        }.items()
    ) + b"u"  # fmt: skip
    return made + call(name(CLOUD, "_function_setstate"), b"h\x00", b"}" + slots + b"\x86") + b"0"


def class_of(value: bytes) -> bytes:
    made = call(
        name(CLOUD, "_make_skeleton_class"), b"N", value, group(value, name(NASTY, NASTY)),
        b"}" + text("__module__") + value + b"s", value, b"N",
    )  # fmt: skip
    attributes = b"}(" + value + value + text("__doc__") + value + text("f") + b"h\x00" + b"u"
    return made + b"\x94" + call(name(CLOUD, "_class_setstate"), b"2", attributes + b"}\x86")


PICKLE = pickle_of(
    function_of(text(NASTY)),
    call(name(CLOUD, "dynamic_subimport"), text(NASTY), b"}"),
    call(name("builtins", "getattr"), name("m", "n"), text("__" + NASTY)),
    call(name("os", "system." + NASTY), text(NASTY)),
    call(name("any." + NASTY, NASTY), name("os", "system")),
    call(text(NASTY)),
    call(call(name("m", NASTY))),
    name("os", "environ." + NASTY) + b"}b",
    call(name(CLOUD, "_make_skeleton_class"), b"N", text(NASTY), group(text(NASTY)), b"}", b"N", b"N")
    + b"}" + text(NASTY) + text(NASTY) + b"s\x86",
)  # fmt: skip


def texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            # a docstring keeps its lines, and is made printable where it is shown
            if key != "doc":
                yield from texts_in([key, item])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


@pytest.mark.parametrize("cut", [len(PICKLE), len(PICKLE) - 1])
def test_what_a_pickle_says_is_printable(cut: int) -> None:
    overview = inspect_pickle(PICKLE[:cut])
    assert overview.dangers
    assert overview.functions
    assert overview.classes
    told = [*texts_in(overview.as_json())]
    assert [one for one in told if not one.isprintable()] == []
    assert any(r"\x1b[2J" in one for one in told)


def test_what_its_authors_facts_say_is_printable(tmp_path: Path) -> None:
    nasty = {"module": NASTY, "name": NASTY, "source": NASTY, "bytes": 1}
    content = {"format": NASTY, "cloudpickle_version": NASTY, "digest": NASTY, NASTY: NASTY, "a": {NASTY: NASTY}}
    (tmp_path / "env-facts.json").write_text(
        json.dumps({**content, "by_value": [nasty], "by_reference": [nasty]}), encoding="utf-8"
    )
    facts = read_facts(tmp_path, "")
    assert facts is not None
    assert [one for one in texts_in(facts.as_json()) if not one.isprintable()] == []
