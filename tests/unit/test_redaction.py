"""No value that was ever handed out shows up in text again."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.redaction import MARK, MIN_CHARS, Redactor


def knowing(*values: str) -> Redactor:
    redactor = Redactor()
    for value in values:
        redactor.learn(value)
    return redactor


@pytest.mark.parametrize(
    ("value", "text", "clean"),
    [
        ("secret-token", "the secret-token is", f"the {MARK} is"),
        ("secret-token", "secret-token", MARK),
        ("secret-token", "secret-tokensecret-token", MARK + MARK),
        ("secret-token", "Secret-Token", "Secret-Token"),
        ("secret-token", "", ""),
        ("Bearer secret-token", "it was secret-token", f"it was {MARK}"),
        ("Bearer secret-token", "Authorization: Bearer secret-token", f"Authorization: Bearer {MARK}"),
        ("bearer  secret-token ", "secret-token", MARK),
        ("Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", MARK),
        ("Token secret-token", "secret-token", MARK),
        ("Digest secret-token", "Digest secret-token", MARK),
        ("Bearer abc", "abc Bearer abc", f"abc {MARK}"),
        ("sécret…token", "a sécret…token b", f"a {MARK} b"),
    ],
)
def test_a_learned_value_is_replaced_wherever_it_stands(value: str, text: str, clean: str) -> None:
    assert knowing(value).clean(text) == clean


def test_nothing_is_replaced_before_anything_is_learned() -> None:
    assert Redactor().clean("secret-token") == "secret-token"


@pytest.mark.parametrize("value", ["", "1", "true", "eu-1", "x" * (MIN_CHARS - 1)])
def test_values_too_short_to_be_secret_are_left(value: str) -> None:
    assert knowing(value).clean(f"a {value} b") == f"a {value} b"


@pytest.mark.parametrize("order", [1, -1])
def test_a_value_inside_of_another_leaves_nothing_of_the_longer_one(order: int) -> None:
    values = ["acme-corp", "sk-acme-corp-9f8a7b", "acme-corp-9f"][::order]
    assert knowing(*values).clean("key sk-acme-corp-9f8a7b of acme-corp") == f"key {MARK} of {MARK}"


def test_values_that_overlap_in_the_text_leave_nothing_of_either() -> None:
    assert knowing("abcdef-ghijkl", "ghijkl-mnopqr").clean("<abcdef-ghijkl-mnopqr>") == f"<{MARK}>"
    assert knowing("aXaXaX").clean("<aXaXaXaXaX>") == f"<{MARK}>"


def test_a_value_that_is_part_of_the_mark_does_no_harm() -> None:
    assert knowing("redacted", "secret-token").clean("secret-token redacted") == f"{MARK} {MARK}"


def test_thousands_of_values_with_one_beginning_are_all_found() -> None:
    redactor = knowing(*(f"Bearer eyJhbGciOi-{number:05}" for number in range(5000)))
    assert redactor.clean("eyJhbGciOi-00000 eyJhbGciOi-04999 eyJhbGciOi-05000") == f"{MARK} {MARK} eyJhbGciOi-05000"


@given(
    st.lists(st.text(string.ascii_lowercase[:3], min_size=MIN_CHARS, max_size=9), min_size=1, max_size=5),
    st.text(string.ascii_lowercase[:3], max_size=60),
)
def test_no_learned_value_is_ever_left(values: list[str], text: str) -> None:
    clean = knowing(*values).clean(text)
    assert not [value for value in values if value in clean]
    # and what stays is what was there, in order
    rest = iter(text)
    assert all(char in rest for piece in clean.split(MARK) for char in piece)


def test_a_decoded_json_value_is_clean_in_every_text_and_name() -> None:
    value = {"role": "user", "secret-token": ["a secret-token", 1, None, 2.5, True, {"x": "secret-token"}]}
    clean = knowing("secret-token").clean_json(value)
    assert clean == {"role": "user", MARK: [f"a {MARK}", 1, None, 2.5, True, {"x": MARK}]}


def test_a_decoded_json_value_is_left_alone_when_nothing_is_known() -> None:
    value = [{"a": "b"}]
    assert Redactor().clean_json(value) is value
