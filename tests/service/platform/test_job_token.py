"""Tokens of jobs: for one job, from one service."""

from __future__ import annotations

import pytest

from runner.service.job_token import PREFIX, issue, job_of

SECRET, OTHER = b"s" * 32, b"o" * 32


def test_a_token_names_its_job() -> None:
    assert job_of(SECRET, issue(SECRET, "job_a")) == "job_a"


@pytest.mark.parametrize(
    "token",
    [
        issue(OTHER, "job_a"),
        issue(SECRET, "job_a").replace("job_a", "job_b"),
        issue(SECRET, "job_a")[:-1],
        issue(SECRET, "job_a").removeprefix(PREFIX),
        f"{PREFIX}job_a",
        f"{PREFIX}job_a.\ud800",
        "",
    ],
)
def test_a_token_that_was_not_issued_here_is_nobodys(token: str) -> None:
    assert job_of(SECRET, token) is None
