"""docs/protocol.md is authoritative: it and runner/protocol.py say the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from runner import calls, child, limits, protocol

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
SECTIONS = {
    "Work channel: caller to worker": protocol.ToWorker,
    "Work channel: worker to caller": protocol.FromWorker,
    "Auth channel: worker to caller": protocol.AuthFromWorker,
    "Auth channel: caller to worker": protocol.AuthToWorker,
}
Row = tuple[str, str, str]


def sections() -> dict[str, str]:
    pieces = re.split(r"^## (.+)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def documented(section: str) -> dict[str, list[Row]]:
    """Messages of one section in order, each with the first three cells of its table's rows."""
    pieces = re.split(r"^### `(.+)`\n", sections()[section], flags=re.MULTILINE)
    tables = {}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        assert "| field | type | default | meaning |\n|---|---|---|---|\n" in text, name
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
        assert all(len(row) == 4 and row[3] for row in rows), f"{name}: every field has a meaning"
        tables[name] = [(row[0].strip("`"), row[1], row[2].strip("`")) for row in rows[2:]]
    return tables


def defined(struct: type[Any]) -> list[Row]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return [
        (field.encode_name, spelled(field.type), "" if field.required else shown(field.default))
        for field in info.fields
    ]


def shown(default: object) -> str:
    return {None: "nil", "": "empty"}.get(default, str(default))  # type: ignore[call-overload, no-any-return]


def number(value: float) -> str:
    return {2**63 - 1: "2^63-1", -(2**63): "-2^63"}.get(int(value), f"{value:g}")


def spelled(kind: msgspec.inspect.Type) -> str:
    """A type in the words of the page."""
    match kind:
        case msgspec.inspect.IntType(ge=None, le=None):
            return "int"
        case msgspec.inspect.IntType(ge=int(low), le=int(high)):
            return f"int {number(low)} to {number(high)}"
        case msgspec.inspect.FloatType(ge=low, lt=high) if low is not None and high is not None:
            return f"float {number(low)} to below {number(high)}"
        case msgspec.inspect.BoolType():
            return "bool"
        case msgspec.inspect.StrType(min_length=None, max_length=None):
            return "str"
        case msgspec.inspect.StrType(min_length=low, max_length=int(high)):
            return f"str, {low or 0} to {high} characters"
        case msgspec.inspect.BytesType(max_length=high):
            return "bytes" if high is None else f"bytes, 0 to {high}"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.ListType(item_type=item, min_length=low, max_length=int(high)):
            return f"array, {low or 0} to {high} of: {spelled(item)}"
        case msgspec.inspect.DictType(key_type=key, value_type=value, max_length=None):
            return f"map of {spelled(key)} to {spelled(value)}"
        case msgspec.inspect.StructType(cls=cls):
            return f"[`{cls.__name__}`](#{cls.__name__.lower()})"
        case msgspec.inspect.DictType(key_type=key, value_type=value, max_length=int(high)):
            return f"map, 0 to {high} of: {spelled(key)} to {spelled(value)}"
        case msgspec.inspect.FloatType(ge=float(low), le=float(high)) if -low == high == sys.float_info.max:
            return "finite float"
        case msgspec.inspect.UnionType(types=(msgspec.inspect.IntType() as whole, msgspec.inspect.FloatType() as part)):
            return f"{spelled(whole)}, or {spelled(part)}"
        case msgspec.inspect.UnionType(types=(item, msgspec.inspect.NoneType())):
            return f"{spelled(item)}, or nil"
        case _:
            raise AssertionError(f"a type without words: {kind}")


@pytest.mark.parametrize("section", SECTIONS)
def test_each_direction_has_the_messages_of_its_union_in_order(section: str) -> None:
    union = SECTIONS[section]
    members = get_args(union) or (union,)
    assert list(documented(section)) == [member.__struct_config__.tag for member in members]


@pytest.mark.parametrize(
    ("section", "struct"),
    [(section, member) for section, union in SECTIONS.items() for member in get_args(union) or (union,)],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_message_has_the_fields_types_and_defaults_of_its_struct(section: str, struct: Any) -> None:
    assert documented(section)[struct.__struct_config__.tag] == defined(struct)


@pytest.mark.parametrize(
    "struct", [protocol.RolloutSpec, protocol.PlainOutcome, protocol.RemoteFailure, protocol.Diagnostic]
)
def test_parts_of_messages_are_documented_too(struct: Any) -> None:
    assert documented("Parts of messages")[struct.__name__] == defined(struct)


def test_every_struct_of_the_module_is_on_the_page() -> None:
    members = {member for union in SECTIONS.values() for member in get_args(union) or (union,)}
    parts = {protocol.RolloutSpec, protocol.PlainOutcome, protocol.RemoteFailure, protocol.Diagnostic}
    structs = {
        value
        for name, value in vars(protocol).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and not name.startswith("_")
    }
    assert structs - {msgspec.Struct} == members | parts


def test_the_protocol_number_is_the_modules() -> None:
    assert re.findall(r"Protocol number: \*\*(\d+)\*\*", PAGE.read_text("utf-8")) == [str(protocol.PROTOCOL)]


def test_the_descriptors_are_the_modules() -> None:
    table = dict(re.findall(r"^\| (\d) \| (.+) \|$", sections()["Descriptors"], flags=re.MULTILINE))
    assert table[str(protocol.WORK_FD)].startswith("*work* channel")
    assert table[str(protocol.AUTH_FD)].startswith("*auth* channel")
    assert table[str(protocol.BUNDLE_FD)].startswith("the bundle's pickle")
    assert str(protocol.DUMP_FD) in table
    assert table[str(protocol.TRIAL_FD)].endswith("the sandboxes of trials")
    assert set(table) == {"0", "3", "4", "5", "6", "7"}
    assert f"sends signal {protocol.DUMP_SIGNAL}" in sections()["Descriptors"]


def test_every_limit_is_quoted_with_its_value() -> None:
    rows = re.findall(r"^\| .+ \| (\d+)(?: \w+)? \| `(\w+)` \|$", sections()["Limits"], flags=re.MULTILINE)
    assert len(rows) == 23
    for value, name in rows:
        home = next(module for module in (limits, child, calls) if hasattr(module, name))
        assert int(value) == getattr(home, name), name


def test_the_frame_limit_is_quoted_where_frames_are_described() -> None:
    assert f"limit of {limits.MAX_FRAME_BYTES} bytes" in sections()["Frames"]
    assert f"{protocol.HEADER.size}-byte unsigned big-endian" in sections()["Frames"]


def test_the_deadlines_are_limits_of_the_caller() -> None:
    named = re.findall(r"^\| `(\w+)` \|", sections()["Deadlines"], flags=re.MULTILINE)
    assert named == ["startup_s", "dataset_s", "rollout_s", "scoring_s", "cancel_grace_s", "shutdown_s"]
    assert all(hasattr(limits.Limits(), name) for name in named)
    text = " ".join(sections()["Deadlines"].split())
    assert (
        f"{limits.INSPECT_S:g} s to answer `inspect`; before a kill, its interpreter another {limits.DUMP_S:g} s"
        in text
    )


def test_the_waits_at_the_end_are_those_of_the_code() -> None:
    text = sections()["End"]
    assert f"waits {child.EXIT_WAIT_S:g} s for the exit" in text
    assert f"for at most {child.EOF_WAIT_S:g} s" in text
