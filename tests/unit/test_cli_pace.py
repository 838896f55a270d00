"""How fast it goes: of late, not since hours ago; and nothing where nothing can be said."""

from __future__ import annotations

import pytest

from runner.cli.pace import Pace, duration, rate


def test_the_pace_is_that_of_late() -> None:
    pace = Pace()
    for second in range(1, 101):
        pace.at(second, 10 * second)
    assert pace.at(200, 1000 + 50) == pytest.approx(0.5)


def test_bursts_far_apart_have_the_pace_of_the_whole() -> None:
    pace = Pace()
    seen = [pace.at(second, 4 * (second // 60)) for second in range(1, 601)]
    assert seen[-1] == pytest.approx(40 / 600)
    assert seen[58] == 0


def test_a_pace_that_was_seen_for_less_than_a_second_is_none() -> None:
    assert Pace().at(0.001, 50) == 0


def test_what_is_remembered_of_a_long_run_is_bounded() -> None:
    pace = Pace()
    for eighth in range(100_000):
        pace.at(eighth / 8, eighth)
    assert len(pace._seen) < 300


@pytest.mark.parametrize(
    ("value", "text"), [(1234.56, "1,234.6/s"), (1.0, "1.0/s"), (0.5, "30.0/min"), (0.01, "36.0/h")]
)
def test_a_pace_in_words(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1 s"), (99.0, "99 s"), (100.0, "2 min"), (5000.0, "83 min"), (9000.0, "2.5 h"), (864_000.0, "10.0 days")],
)
def test_a_length_of_time_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
