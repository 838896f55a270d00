"""No secret that was ever handed out shows up in text again, and what is none stays readable."""

from __future__ import annotations

import base64
import json
import secrets
import string
import tracemalloc
import urllib.parse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.redaction import MARK, MIN_CHARS, Redactor
from runner.redaction.matcher import FEW, GRAM, HEAD
from runner.redaction.secret import OPEN_NAMES
from runner.text import bounded

RANDOM = "Zq3xV9tLm2Rk8WbY"
"""What a token looks like; whatever header it stands in."""


def knowing(*values: str) -> Redactor:
    redactor = Redactor()
    for value in values:
        redactor.learn(value)
    return redactor


def crowded(*values: str) -> Redactor:
    """One that knows so many other values, too, that it searches in its other way."""
    return knowing(*(f"{number:04}-{'x' * GRAM}" for number in range(FEW + 1)), *values)


def handed_out(**headers: str) -> Redactor:
    redactor = Redactor()
    redactor.learn_headers({name.replace("_", "-"): value for name, value in headers.items()})
    return redactor


# -- where a value stands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("redactor", [knowing, crowded])
@pytest.mark.parametrize(
    ("value", "text", "clean"),
    [
        ("secret-token", "the secret-token is", f"the {MARK} is"),
        ("secret-token", "secret-token", MARK),
        ("secret-token", "secret-tokensecret-token", MARK + MARK),
        ("secret-token", "xsecret-tokenx", f"x{MARK}x"),
        ("secret-token", "Secret-Token", "Secret-Token"),
        ("secret-token", "secret-toke", "secret-toke"),
        ("secret-token", "", ""),
        ("Bearer secret-token", "it was secret-token", f"it was {MARK}"),
        ("Bearer secret-token", "Authorization: Bearer secret-token", f"Authorization: Bearer {MARK}"),
        ("bearer  secret-token ", "secret-token", MARK),
        ("Token secret-token", "secret-token", MARK),
        ("Digest secret-token", "Digest secret-token", f"Digest {MARK}"),
        ("Bearer abc", "abc Bearer abc", f"abc {MARK}"),
        ("sécret…token", "a sécret…token b", f"a {MARK} b"),
        ("two words only", "of two words only.", f"of {MARK}."),
        ("a b c d e", "x a b c d e x", f"x {MARK} x"),
        ("  padded-token\t", "padded-token", MARK),
    ],
)
def test_a_learned_value_is_replaced_wherever_it_stands(redactor: Any, value: str, text: str, clean: str) -> None:
    assert redactor(value).clean(text) == clean


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


def test_a_very_long_value_is_taken_out_whole_and_no_further() -> None:
    long = secrets.token_urlsafe(4 * HEAD)
    assert knowing(long).clean(f"<{long}> and more") == f"<{MARK}> and more"
    # of one that was cut, all that is left of it
    assert knowing(long).clean(f"{long[: 2 * HEAD]} and more") == f"{MARK} and more"


TEXT = string.ascii_lowercase[:3]


@pytest.mark.parametrize("redactor", [knowing, crowded])
@given(
    values=st.lists(st.text(TEXT, min_size=MIN_CHARS, max_size=9), min_size=1, max_size=5),
    text=st.text(TEXT + " ", max_size=60),
)
@settings(deadline=None)
def test_no_learned_value_is_ever_left(redactor: Any, values: list[str], text: str) -> None:
    clean = redactor(*values).clean(text)
    assert not [value for value in values if value in clean]
    # and what stays is what was there, in order
    rest = iter(text)
    assert all(char in rest for piece in clean.split(MARK) for char in piece)


@given(
    value=st.text(st.characters(min_codepoint=33, max_codepoint=255), min_size=MIN_CHARS, max_size=300),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
)
@settings(deadline=None, max_examples=50)
def test_any_value_is_taken_out_of_any_surroundings(value: str, before: str, after: str) -> None:
    for redactor in (knowing(value), crowded(value)):
        assert value not in redactor.clean(f"{before}{value}{after}").replace(MARK, "")


@given(st.text(max_size=200))
@settings(deadline=None)
def test_text_without_any_of_the_values_is_the_same_afterwards(text: str) -> None:
    redactor = crowded(*(f"{RANDOM}{number}" for number in range(50)))
    if RANDOM not in text and "-xxxxxx" not in text:
        assert redactor.clean(text) == text


# -- which headers are secret ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "authorization", "Proxy-Authorization", "X-Api-Key", "api-key", "apikey", "X-Goog-Api-Key",
        "X-Amz-Security-Token", "X-Auth-Token", "x-access-token", "Cookie", "Set-Cookie", "X-Client-Secret",
        "X-Session", "X-Session-Id", "X-Signature", "X-Password", "X-Goog-Iap-Jwt-Assertion", "X-Keys", "DPoP-Token",
        "Ocp-Apim-Subscription-Key", "WWW-Authenticate", "X-Credentials",
    ],
)  # fmt: skip
def test_a_header_is_secret_by_its_name_whatever_its_value_looks_like(name: str) -> None:
    assert handed_out(**{name: "correct-horse"}).clean("correct-horse") == MARK


@pytest.mark.parametrize("name", sorted(OPEN_NAMES))
def test_a_header_is_open_by_its_name_whatever_its_value_looks_like(name: str) -> None:
    assert handed_out(**{name: RANDOM}).clean(RANDOM) == RANDOM


@pytest.mark.parametrize(
    "value",
    [
        "application/json", "1", "true", "eu-west-1", "correct-horse-battery-staple", "gpt-4o-mini-2024-07-18",
        "meta-llama/Llama-3.1-70B-Instruct", "text/html; charset=utf-8", "no-cache, no-store", "2024-10-22",
        "TextGenerationInference", "r-0", "12345678901234567890", "https://judge.example/v1/chat",
    ],
)  # fmt: skip
def test_a_value_of_any_other_header_is_open_when_it_looks_like_words(value: str) -> None:
    assert handed_out(X_Something=value).clean(f"a {value} b") == f"a {value} b"


@pytest.mark.parametrize(
    "value",
    [
        RANDOM,
        "sk-proj-" + RANDOM,
        "0b5e9c1f8d7a4e62a1c3",
        "2f1c8e0a-6b7d-4c3e-9f10-4a5b6c7d8e9f",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_a_value_of_any_other_header_is_secret_when_it_looks_drawn_at_random(value: str) -> None:
    assert handed_out(X_Something=value).clean(f"a {value} b") == f"a {MARK} b"


def test_only_the_part_that_looks_random_is_taken_out_of_an_unknown_header() -> None:
    redactor = handed_out(X_Something=f"tenant=acme-industries; id={RANDOM}")
    assert redactor.clean(f"acme-industries {RANDOM}") == f"acme-industries {MARK}"


def test_the_parts_of_a_credential_with_parts_are_taken_out_each() -> None:
    redactor = handed_out(
        Authorization=f"AWS4-HMAC-SHA256 Credential=AKIA/2024/eu/s3, Signature={RANDOM}", Cookie=f"sid={RANDOM}9; a=b"
    )
    assert redactor.clean(f"it is {RANDOM} and {RANDOM}9 of AKIA") == f"it is {MARK} and {MARK} of AKIA"


def test_a_basic_credential_is_taken_out_as_it_was_before_it_was_encoded() -> None:
    encoded = base64.b64encode(b"somebody:hunter2-pass").decode()
    redactor = handed_out(Authorization=f"Basic {encoded}")
    text = f"{encoded} somebody:hunter2-pass hunter2-pass somebody"
    assert redactor.clean(text) == f"{MARK} {MARK} {MARK} somebody"


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Basic not-base64!", "Basic /////w=="])
def test_what_calls_itself_basic_and_is_not_is_taken_out_as_it_stands(value: str) -> None:
    assert handed_out(Authorization=value).clean(value) == f"Basic {MARK}"


# -- spellings ------------------------------------------------------------------------------------------------


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_CHARS, max_size=60))
@settings(deadline=None)
def test_a_value_is_found_as_json_python_and_urls_spell_it(value: str) -> None:
    redactor = knowing(value)
    quoted = urllib.parse.quote(value, safe="")
    for text in (
        json.dumps({"token": value}),
        json.dumps({"token": value}, ensure_ascii=False).replace("/", "\\/"),
        repr({"token": value}),
        f"https://judge.example/?token={quoted}&x=1",
        f"https://judge.example/{urllib.parse.quote(value)}",
        urllib.parse.urlencode({"token": value}),
    ):
        assert MARK in redactor.clean(text), text
    assert MARK in redactor.clean(
        "".join(c.lower() if "%" in quoted[max(0, i - 2) : i] else c for i, c in enumerate(quoted))
    )


def test_headers_that_are_printed_as_python_or_json_are_clean() -> None:
    headers = {"Authorization": "Bearer it's\"a\\secret/token"}
    redactor = handed_out(**headers)
    for text in (str(headers), json.dumps(headers), f"{list(headers.items())}", repr(json.dumps(headers))):
        assert "secret/token" not in redactor.clean(text) or text == repr(json.dumps(headers))
    assert redactor.clean(json.dumps(headers)) == json.dumps({"Authorization": f"Bearer {MARK}"})


# -- texts that were cut or taken apart -----------------------------------------------------------------------


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_no_piece_of_a_value_is_left_where_a_text_was_shortened(shift: int) -> None:
    value = secrets.token_urlsafe(30)
    limit = 400
    # the value stands across the place where the beginning ends, or where the end begins
    text = "a" * (160 + shift) + value + "b" * 800 + value + "c" * (160 + shift)
    short = bounded(text, limit)
    clean = knowing(value).clean(short)
    assert "characters left out" in clean
    for start in range(len(value) - GRAM + 1):
        assert value[start : start + GRAM] not in clean


def test_no_piece_of_a_value_is_left_where_a_stream_was_shortened() -> None:
    value = "sk-" + RANDOM
    text = f"the token is {value[:12]}\n… 1234 bytes left out …\n{value[-9:]} is the token"
    assert knowing(value).clean(text) == f"the token is {MARK}\n… 1234 bytes left out …\n{MARK} is the token"


def test_what_only_looks_like_a_piece_is_left() -> None:
    value = "sk-" + RANDOM
    text = "the token is not sk-\n… 12 bytes left out …\nin here"
    assert knowing(value).clean(text) == text


@given(cut=st.integers(1, 18), before=st.text("ab \n", max_size=10), after=st.text("ab \n", max_size=10))
@settings(deadline=None)
def test_a_value_across_two_texts_is_taken_out_of_both(cut: int, before: str, after: str) -> None:
    value = "sk-" + RANDOM
    first, second = knowing(value).clean_seam(before + value[:cut], value[cut:] + after)
    assert (first, second) == (before + MARK, MARK + after)


def test_two_texts_that_have_nothing_across_them_are_left() -> None:
    redactor = knowing("secret-token")
    assert redactor.clean_seam(f"a {MARK}", "b secret-") == (f"a {MARK}", "b secret-")
    assert redactor.clean_seam("a secret", "token b") == ("a secret", "token b")
    assert Redactor().clean_seam("a", "b") == ("a", "b")


# -- memory ---------------------------------------------------------------------------------------------------


def test_what_is_still_in_use_is_never_forgotten() -> None:
    redactor = Redactor(capacity=100)
    for number in range(1000):
        redactor.learn_headers({"Authorization": f"Bearer {RANDOM}-{number}"})
        redactor.learn_headers({"X-Api-Key": "long-lived-key"})
        assert redactor.clean(f"{RANDOM}-{number} long-lived-key") == f"{MARK} {MARK}"
    # and as many of the newest as were promised
    assert all(redactor.clean(f"{RANDOM}-{number}") == MARK for number in range(901, 1000))
    assert redactor.clean(f"{RANDOM}-1 ") == f"{RANDOM}-1 "


def test_what_is_handed_out_once_and_for_all_is_never_forgotten() -> None:
    redactor = Redactor(capacity=10)
    redactor.learn_for_good("once-and-for-all")
    for number in range(100):
        redactor.learn_headers({"Authorization": f"Bearer {RANDOM}-{number}"})
    assert redactor.knows_any
    assert redactor.clean("it is once-and-for-all.") == f"it is {MARK}."
    assert redactor.clean_seam("it is once-and", "-for-all.") == (f"it is {MARK}", f"{MARK}.")
    # where a text was shortened, a piece of it
    assert (
        redactor.clean(f"{'x' * 99}once-and-f\n… 7 bytes left out …\nx") == f"{'x' * 99}{MARK}\n… 7 bytes left out …\nx"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("postgres://me:hunter2secret@db.example:5432/x", "hunter2secret"),
        ("postgres://me:hunter2%21secret@db.example/x", "hunter2!secret"),
        ("postgres://me:hunter2%21secret@db.example/x", "hunter2%21secret"),
        ("redis://:hunter2/secret@cache.example", "hunter2/secret"),
        ("postgres://me:hunter2@secret@db.example/x", "hunter2@secret"),
        ("line one of a key\nline two of a key\n", "line two of a key"),
        ("  spaces around  ", "spaces around"),
    ],
)
def test_parts_of_a_lasting_secret_are_secret(value: str, text: str) -> None:
    redactor = Redactor()
    redactor.learn_for_good(value)
    assert redactor.clean(f"a {text} b") == f"a {MARK} b"
    assert redactor.clean("me at db.example, over postgres, is open") == "me at db.example, over postgres, is open"


def test_memory_does_not_grow_with_the_tokens_that_were_ever_handed_out() -> None:
    redactor = Redactor(capacity=500)

    def learn(count: int) -> None:
        for _ in range(count):
            redactor.learn_headers({"Authorization": f"Bearer {secrets.token_urlsafe(32)}"})

    learn(3_000)
    tracemalloc.start()
    try:
        learn(3_000)
        before, _ = tracemalloc.get_traced_memory()
        learn(6_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 300_000


# -- JSON -----------------------------------------------------------------------------------------------------


def test_a_decoded_json_value_is_clean_in_every_text_and_name() -> None:
    value = {"role": "user", "secret-token": ["a secret-token", 1, None, 2.5, True, {"x": "secret-token"}]}
    clean = knowing("secret-token").clean_json(value)
    assert clean == {"role": "user", MARK: [f"a {MARK}", 1, None, 2.5, True, {"x": MARK}]}


def test_a_decoded_json_value_is_left_alone_when_nothing_is_known() -> None:
    value = [{"a": "b"}]
    assert Redactor().clean_json(value) is value
