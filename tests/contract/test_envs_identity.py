"""Identity of an example by content."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs import canonical_example_id

FIXTURES = Path(__file__).parent.parent / "fixtures" / "contract"
RECORDED = json.loads((FIXTURES / "canonical_example_id.json").read_text(encoding="utf-8"))

KNOWN: list[tuple[Any, str]] = [
    (None, "162d989cb2fa057a6c166368087c595de5a738971cc20347c49cbed2e5684564"),
    (0, "66362bb829b2ab6152f8340d24f5c3a9eac39c351ec9cf12d66b3a22ee6e8559"),
    (-0.0, "66362bb829b2ab6152f8340d24f5c3a9eac39c351ec9cf12d66b3a22ee6e8559"),
    (1.0, "86d826ef8d7fbb18b37aa1c1135dcee5596fa936cf5ec7cd7982f44d9c151e9c"),
    (True, "8a177dfee83bbbab31d03b1c5f456a1816563ffde2ffe4252940cbe462607b75"),
    ("é", "f69eb1693386ed8130035257cecc8a88127bdf3f49ea0d540bacdd5d0bb5a1b0"),
    ({}, "bb73190cc06c0a4dccb1f5fdaf4d3348d94c9393fb92ad7dbf9e221b87439b18"),
    (1e-7, "f3b26dfa5c1090c755d2a98d865d1ab74c5a694a5d4e2b3d5b1c7bd35af55fd7"),
    ({"a": [1, 2.5, None], "b": {"é": "x"}}, "2fdf9721c57485da078fe92b4cb2dded3b18a3c4e22d66f593237a87924ee822"),
    (
        {"prompt_messages": [{"role": "user", "content": "q"}], "answer": "a"},
        "62aeee44c85a6ba4893099f8e095708d89d4780589e3ef11c0a78fc1549af544",
    ),
]


@pytest.mark.parametrize(("value", "expected"), KNOWN)
def test_known_values_have_their_known_ids(value: Any, expected: str) -> None:
    assert canonical_example_id(value) == expected


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: repr(entry["value"])[:30])
def test_recorded_values_have_their_recorded_ids(entry: dict[str, Any]) -> None:
    assert canonical_example_id(entry["value"]) == entry["id"]


def test_true_differs_from_one_and_missing_from_null() -> None:
    assert canonical_example_id(True) != canonical_example_id(1)
    assert canonical_example_id({"a": True}) != canonical_example_id({"a": 1})
    assert canonical_example_id({"a": None}) != canonical_example_id({})


def test_any_mapping_and_any_sequence_count() -> None:
    assert canonical_example_id(MappingProxyType({"a": (1, range(2))})) == canonical_example_id({"a": [1, [0, 1]]})
    assert canonical_example_id(OrderedDict(b=1, a=2)) == canonical_example_id({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e16, float(2**53)])
def test_integers_beyond_the_safe_range_are_refused(value: Any) -> None:
    assert canonical_example_id(2**53 - 1) != canonical_example_id(1 - 2**53)
    with pytest.raises(ValueError, match="safe range"):
        canonical_example_id([value])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_floats_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="non-finite"):
        canonical_example_id({"a": value})


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="valid UTF-8"):
        canonical_example_id("\ud800")


def test_a_key_that_is_no_utf8_is_a_unicode_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        canonical_example_id({"\ud800": 1})


@pytest.mark.parametrize("key", [1, None, True, ("a",)])
def test_keys_must_be_strings(key: Any) -> None:
    with pytest.raises(ValueError, match="strings"):
        canonical_example_id({key: 1})


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), {1}, object(), 1j, Path("x")])
def test_everything_else_is_refused_by_type_name(value: Any) -> None:
    with pytest.raises(ValueError, match=f"{type(value).__name__}.*not JSON-canonicalizable"):
        canonical_example_id([value])


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 2**53),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4))
)


def reference(value: Any) -> Any:
    """Normalise independently: whole floats become integers, everything else stays."""
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [reference(member) for member in value]
    if isinstance(value, dict):
        return {key: reference(member) for key, member in value.items()}
    return value


@given(JSON_VALUES)
def test_the_id_is_the_hash_of_the_canonical_text(value: Any) -> None:
    text = json.dumps({"v": 1, "value": reference(value)}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_example_id(value) == hashlib.sha256(text.encode()).hexdigest()


def disguised(value: Any) -> Any:
    """Return an equal value in other clothes: keys reversed, lists as tuples, whole numbers as floats."""
    if isinstance(value, dict):
        return {key: disguised(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return tuple(map(disguised, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@given(JSON_VALUES)
def test_key_order_tuples_and_whole_floats_make_no_difference(value: Any) -> None:
    assert canonical_example_id(disguised(value)) == canonical_example_id(value)
