"""What counts as a secret, and that no text shows one."""

from __future__ import annotations

import pytest

from benchmax.bundle.findings.credentials import (
    is_secret_argument,
    is_secret_name,
    secret_variables,
    secrets_in,
    without_values,
)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "dbPassword", "GITHUB_PAT", "SENTRY_DSN", "aws-secret-access-key"],
)
def test_a_name_with_a_word_for_secrets_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MONKEY", "KEYBOARD", "PATH", "PATTERN", "PWD", "TOKENIZER", "AUTHOR", "PASSENGER"])
def test_a_name_that_only_contains_one_is_none(name: str) -> None:
    assert not is_secret_name(name)


def test_of_the_environment_only_values_that_may_be_secret_are_looked_for() -> None:
    found = secret_variables(
        {
            "OPENAI_API_KEY": "zq-0123456789",
            "INDEX": "https://me:s3cr3t-w0rd@index.example/simple",
            "OTHER_API_KEY": "a much longer value",
            "SSH_AUTH_SOCK": "/run/ssh/agent",
            "DB_PASSWORD": "postgres",
            "SHORT_TOKEN": "abc1",
            "LOCAL_API_KEY": "no-key-needed",
            "HOME": "/home/author",
        }
    )
    assert found == {
        "OTHER_API_KEY": "a much longer value",
        "OPENAI_API_KEY": "zq-0123456789",
        "INDEX": "s3cr3t-w0rd",
    }
    # a value that holds another must be replaced first
    assert list(found.values()) == sorted(found.values(), key=len, reverse=True)


def test_texts_are_shown_without_the_secrets_in_them() -> None:
    text = "zq-0123456789 and https://me:s3cr3t-w0rd@db.example/x and sk-" + "0123456789" * 3
    assert without_values(text, {"OPENAI_API_KEY": "zq-0123456789"}) == (
        "[OPENAI_API_KEY] and https://me:[password]@db.example/x and [secret]"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key: sk-0123456789abcdefghij.", ["sk-0123456789abcdefghij"]),
        ("postgres://me:s3cr3t-w0rd@db/x and http://you:0ther-0ne@host", ["s3cr3t-w0rd", "0ther-0ne"]),
        ("postgres://me:password@db/x", []),
        ("sk-short, and http://host:80/a@b", []),
    ],
)
def test_every_secret_in_a_text_is_told_with_why(text: str, found: list[str]) -> None:
    assert [value for value, _ in secrets_in(text)] == found
    assert all(reason for _, reason in secrets_in(text))


@pytest.mark.parametrize("piece", ["a.", "a://", "a://b", "b:", "sk-", "-----BEGIN A", "hf_"])
@pytest.mark.timeout(20)
def test_a_long_text_that_nearly_holds_secrets_is_looked_through_all_the_same(piece: str) -> None:
    assert len([*secrets_in(f"a://{piece * 200_000}")]) <= 1


def test_an_argument_is_secret_by_its_name_and_its_value() -> None:
    assert is_secret_argument("api_key", "c0ffee-c0ffee")
    assert not is_secret_argument("api_key", "none")
    assert not is_secret_argument("sort_key", "c0ffee-c0ffee")
