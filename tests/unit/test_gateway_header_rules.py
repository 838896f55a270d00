"""Of a client's headers those that say what is asked go on; of a server's those that say what an answer is."""

from __future__ import annotations

import pytest

from runner.gateway.header_rules import answered_headers, sendable_headers


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "authorization", "Proxy-Authorization", "api-key", "X-Api-Key", "x-goog-api-key", "Cookie",
        "X-Auth-Token", "X-Amz-Security-Token", "Host", "Connection", "Keep-Alive", "Transfer-Encoding", "TE",
        "Trailer", "Upgrade", "Content-Length", "Expect", "Accept-Encoding", "X-Forwarded-For", "X-Forwarded-Host",
        "Forwarded", "X-Real-IP", "Via", "Origin", "Referer", "X-HTTP-Method-Override", "X-Original-URL",
        "Proxy-Connection", "OpenAI-Organization", "OpenAI-Project", "X-Portkey-Config", "X-Whatever",
    ],
)  # fmt: skip
def test_what_authorises_or_routes_or_is_about_the_connection_stays_behind(name: str) -> None:
    assert sendable_headers([(name.encode(), b"value")]) == {}


def test_what_says_what_is_asked_and_by_which_program_goes_on_by_lower_case_name_and_repeated_values_in_one() -> None:
    headers = [
        (b"Content-Type", b"application/json"),
        (b"X-Benchmax-Sample", b"3"),
        (b"Accept", b"a"),
        (b"accept", b"b"),
        (b"OpenAI-Beta", b"x"),
    ]
    assert sendable_headers(headers) == {
        "content-type": "application/json",
        "x-benchmax-sample": "3",
        "accept": "a, b",
        "openai-beta": "x",
    }


def test_of_an_answer_its_kind_and_when_to_ask_again_are_passed_and_nothing_else() -> None:
    headers = [
        (b"Content-Type", b"application/json"),
        (b"Retry-After", b"7"),
        (b"x-ratelimit-remaining-tokens", b"5"),
        (b"openai-processing-ms", b"12"),
        (b"x-request-id", b"r"),
        (b"Set-Cookie", b"session=1"),
        (b"WWW-Authenticate", b"Bearer realm"),
        (b"Authorization", b"Bearer echo"),
        (b"X-Api-Key", b"echo"),
        (b"Location", b"/elsewhere"),
        (b"Connection", b"close"),
        (b"Server", b"x"),
    ]
    assert [name for name, _ in answered_headers(headers)] == [
        "content-type", "retry-after", "x-ratelimit-remaining-tokens", "openai-processing-ms", "x-request-id",
    ]  # fmt: skip
