"""Which URLs are the same place: what clients read differently is never taken for what was bound."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.auth import StaticBearerAuth
from runner.broker import Binding
from runner.broker.address import Address, address_or_none, read_address
from tests.unit.broker_lab import Source

COVERED = [
    ("https://judge.example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1/"),
    ("https://judge.example/v1", "https://judge.example:443/v1"),
    ("https://judge.example:443/v1", "https://judge.example/v1"),
    ("https://judge.example:0443/v1", "https://judge.example:/v1"),
    ("http://judge.example", "http://judge.example:80/anything/at/all"),
    ("https://judge.example", "https://judge.example"),
    ("https://judge.example/", "https://judge.example/v1"),
    ("https://judge.example/", "https://judge.example//v1"),
    ("https://judge.example/v1/", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1//chat"),
    ("https://judge.example/v1", "https://judge.example/v1/chat/completions"),
    ("https://judge.example/v1", "https://JUDGE.Example/v1"),
    ("HTTPS://Judge.Example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1?user=a@b&path=../.."),
    ("https://judge.example/v1", "https://judge.example/v1/..hidden/a..b/..."),
    ("https://judge.example/my%20api", "https://judge.example/my%20api/100%"),
    ("https://xn--jdge-0ra.example", "https://xn--jdge-0ra.example/v1"),
    ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ("http://[::1]:8000/v1", "http://[0:0:0:0:0:0:0:1]:8000/v1"),
    ("http://[FE80::1]/v1", "http://[fe80::1]:80/v1"),
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
]
NOT_COVERED = [
    # origin
    ("https://judge.example/v1", "http://judge.example/v1"),
    ("http://judge.example/v1", "https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example:8443/v1"),
    ("https://judge.example:8443/v1", "https://judge.example/v1"),
    ("http://judge.example/v1", "http://judge.example:443/v1"),
    ("https://judge.example/v1", "https://judge.example:0/v1"),
    ("https://judge.example/v1", "https://evil.example/v1"),
    ("https://judge.example/v1", "https://judge.example.evil/v1"),
    ("https://judge.example/v1", "https://evil-judge.example/v1"),
    ("https://judge.example/v1", "https://a.judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example./v1"),
    ("https://judge.example/v1", "ftp://judge.example:443/v1"),
    ("http://[::1]:8000/v1", "http://[::2]:8000/v1"),
    ("http://[::1]:8000/v1", "http://localhost:8000/v1"),
    ("http://127.0.0.1:8000", "http://2130706433:8000"),
    ("http://127.0.0.1:8000", "http://127.1:8000"),
    ("http://127.0.0.1:8000", "http://[::ffff:127.0.0.1]:8000"),
    # hosts that a client may turn into the bound one, or into another
    ("https://judge.example/v1", "https://ｊudge.example/v1"),
    ("https://judge.example/v1", "https://judge。example/v1"),
    ("https://kudge.example/v1", "https://\u212audge.example/v1"),
    ("https://judge.example/v1", "https://judge%2eexample/v1"),
    ("https://judge.example/v1", "https://%6audge.example/v1"),
    ("https://judge.example/v1", "https://judge.example;evil/v1"),
    ("https://judge.example/v1", "https://judge.example,evil/v1"),
    # somebody else's host behind a user name
    ("http://judge.example", "http://judge.example@evil"),
    ("http://judge.example", "http://judge.example:80@evil"),
    ("https://judge.example/v1", "https://judge.example%2fv1@evil/v1"),
    ("https://judge.example/v1", "https://user:password@judge.example/v1"),
    ("https://judge.example/v1", "https://@judge.example/v1"),
    ("https://judge.example/v1", "https://evil\\@judge.example/v1"),
    ("https://judge.example/v1", "https://evil#@judge.example/v1"),
    ("https://judge.example/v1", "https://evil?@judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example\\@evil/v1"),
    # characters that some readers drop
    ("https://judge.example/v1", "https://judge.exa\nmple/v1"),
    ("https://judge.example/v1", "https://judge.exa\u00admple/v1"),
    ("https://judge.example/v1", "\thttps://judge.example/v1"),
    ("https://judge.example/v1", " https://judge.example/v1"),
    ("https://judge.example/v1", "https://judge.example/v1\r\nHost: evil"),
    ("https://judge.example/v1", "https://judge.example/v1\0"),
    # path
    ("https://judge.example/v1", "https://judge.example"),
    ("https://judge.example/v1", "https://judge.example/"),
    ("https://judge.example/v1", "https://judge.example/v2"),
    ("https://judge.example/v1", "https://judge.example/v10"),
    ("https://judge.example/v1", "https://judge.example/v1;x"),
    ("https://judge.example/v1", "https://judge.example/V1"),
    ("https://judge.example/v1", "https://judge.example/%76%31"),
    ("https://judge.example/v1", "https://judge.example//v1"),
    ("https://judge.example/v1", "https://judge.example?/v1"),
    ("https://judge.example/v1", "https://judge.example/v1/.."),
    ("https://judge.example/v1", "https://judge.example/v1/../admin"),
    ("https://judge.example/v1", "https://judge.example/v1/./x"),
    ("https://judge.example/v1", "https://judge.example/v1/%2e%2e/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%2E./admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%252e%252e/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%25252e%25252e/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%2525252e%2525252e/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/..%2fadmin"),
    ("https://judge.example/v1", "https://judge.example/v1/..%5Cadmin"),
    ("https://judge.example/v1", "https://judge.example/v1/a%252fb"),
    ("https://judge.example/v1", "https://judge.example/v1/..;a=b/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%2e%2e%3ba=b/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/..\\admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%00"),
    ("https://judge.example/v1", "https://judge.example/v1/%0d%0aHost:evil"),
    ("https://judge.example/v1", "https://judge.example/v1/．．/admin"),
    ("https://judge.example/v1", "https://judge.example/v1/%EF%BC%8E%EF%BC%8E/admin"),
    # no URL at all
    ("https://judge.example/v1", ""),
    ("https://judge.example/v1", "judge.example/v1"),
    ("https://judge.example/v1", "//judge.example/v1"),
    ("https://judge.example/v1", "https:/judge.example/v1"),
    ("https://judge.example/v1", "https:judge.example/v1"),
    ("https://judge.example/v1", "https:///v1"),
    ("https://judge.example/v1", "https://judge.example:99999/v1"),
    ("https://judge.example/v1", "https://judge.example:port/v1"),
    ("https://judge.example/v1", "https://[judge.example/v1"),
    ("https://judge.example/v1", "https://[judge.example]/v1"),
    ("https://judge.example/v1", "https://judge\u2100.example/v1"),
]


@pytest.mark.parametrize(("url", "wanted"), COVERED)
def test_a_url_at_or_below_one_that_was_bound_is_covered(url: str, wanted: str) -> None:
    assert Binding(Source(), url).covers(wanted, ())


@pytest.mark.parametrize(("url", "wanted"), NOT_COVERED)
def test_every_other_url_is_not_covered(url: str, wanted: str) -> None:
    assert not Binding(Source(), url).covers(wanted, ())


@given(st.text())
def test_any_text_is_read_or_refused(url: str) -> None:
    assert isinstance(address_or_none(url), Address | None)


PIECES = [
    "/v1",
    "/",
    "..",
    ".",
    "%2e",
    "%2f",
    "%",
    "25",
    "@",
    "evil",
    "\\",
    "?",
    "#",
    ":",
    "80",
    "a",
    ";",
    " ",
    "\t",
    "é",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_whatever_is_covered_is_in_the_bound_place_for_a_real_client(pieces: list[str]) -> None:
    url = "".join(["https://judge.example", *pieces])
    if Binding(Source(), "https://judge.example/v1").covers(url, ()):
        read = httpx.URL(url)
        assert (read.scheme, read.host, read.port or 443, read.userinfo) == ("https", "judge.example", 443, b"")
        assert read.path == "/v1" or read.path.startswith("/v1/")
        assert not {".", ".."} & set(read.path.split("/"))


def test_an_address_says_its_origin_with_the_schemes_own_port_left_out() -> None:
    assert read_address("HTTPS://Judge.Example:443/v1/").origin == "https://judge.example"
    assert read_address("http://[::1]:8000/").origin == "http://[::1]:8000"
    assert read_address("http://judge.example/v1") == Address("http", "judge.example", 80, "/v1")


# -- what can be bound ----------------------------------------------------------------------------------------


def test_urls_of_a_binding_may_be_one_string() -> None:
    assert Binding(Source(), "https://judge.example/v1").urls == ("https://judge.example/v1",)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("judge.example/v1", "is not a base URL such as"),
        ("https://", "is not a base URL such as"),
        ("", "white space, a backslash or characters outside of ASCII"),
        ("ftp://judge.example", "is not a base URL such as"),
        ("https://judge.example:port", "host or port cannot be read"),
        ("https://jüdge.example", "outside of ASCII"),
        ("https://judge.example/v1/../v2", "segments of dots"),
        ("https://judge.example/a%2Fb", "hides a slash"),
        ("https://judge.example/v1?version=1", "query or a fragment"),
        ("https://judge.example/v1#top", "query or a fragment"),
        ("https://judge_example:80;x/v1", "host or port cannot be read"),
        ("https://judge*.example/v1", "letters, digits, dots and hyphens"),
    ],
)
def test_a_url_that_no_request_could_be_held_to_cannot_be_bound(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Binding(Source(), [url])


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="names a user before the host") as caught:
        Binding(StaticBearerAuth("x"), ["https://user:pass-word@judge.example/v1"])
    assert "pass-word" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_binding_with_urls_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="urls must be strings, got bytes"):
        Binding(Source(), [b"https://judge.example"])  # type: ignore[list-item]  # the point
