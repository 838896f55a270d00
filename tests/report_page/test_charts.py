"""Charts: what they draw, and what they say to who cannot see them."""

from __future__ import annotations

import re

import pytest

from runner.report.page.charts import STEPS, Span, heat_row, histogram, spread, time_line
from runner.report.page.figures import duration
from tests.report_page.reading import read


def titles(chart: str) -> list[int]:
    """How many values each bar of a histogram says it has."""
    return [int(text.replace(",", "")) for text in re.findall(r": ([\d,]+)</title>", chart)]


def label(chart: str) -> str:
    [found] = [value for name, value in read(chart.encode()).attributes if name == "aria-label"]
    return found


@pytest.mark.parametrize("values", [[1.0], [0.0, 1.0, 1.0], [n / 7 for n in range(500)], [-1e308, 0.0, 1e308]])
def test_a_histogram_has_every_value_once(values: list[float]) -> None:
    assert sum(titles(histogram("reward", values))) == len(values)


def test_a_histogram_says_what_it_leaves_out() -> None:
    chart = histogram("reward", [1.0, 2.0, float("nan"), float("inf"), None])
    assert sum(titles(chart)) == 2
    assert "mean 1.5 · median 1.5 · 2 values · 3 not drawn: no finite number" in chart
    assert "no values" in histogram("reward", [])


def test_the_spread_of_groups_counts_those_that_differ() -> None:
    chart = spread("reward", [[0.0, 1.0], [1.0, 1.0], [], [0.5]])
    assert (
        label(chart) == "reward of each example, sorted by mean, from 0 to 1: 1 of 4 examples differ within their group"
    )
    assert chart.count("M0.5") == 1


def test_a_heat_map_goes_from_the_lowest_mean_to_the_highest() -> None:
    row = heat_row("reward", [0.0, 1.0, None, 1.0, 0.5])
    assert [(shade, path) for shade, path in re.findall(r'class="heat(\d)" d="([^"]*)"', row)] == [
        ("0", "M0 0h1v1h-1z"),
        ("3", "M4 0h1v1h-1z"),
        ("6", "M1 0h1v1h-1zM3 0h1v1h-1z"),
    ]
    assert label(row) == "reward: mean of each example, from 0 to 1"


def test_a_heat_map_of_many_examples_has_no_more_columns_than_can_be_seen() -> None:
    row = heat_row("reward", [float(n % 2) for n in range(STEPS * 3)])
    assert 'viewBox="0 0 400 1"' in row


def test_the_time_line_tells_the_most_that_ran_at_once() -> None:
    spans = [Span(0.0, 2.0, True), Span(1.0, 3.0, False), Span(2.0, 4.0, True), Span(3.5, 3.5, True)]
    chart = time_line(spans, end=5.0, show=duration)
    assert "at most 2 rollouts at once" in chart
    assert chart.count('class="lane') == 3  # the drawing, those that ended well, those that did not
    assert "When each of 4 rollouts ran" in chart


def test_of_many_rollouts_only_their_number_is_drawn() -> None:
    chart = time_line([Span(n, n + 1.5, True) for n in range(1000)], end=0.0, show=duration)
    assert "lanes" not in chart
    assert "16 min 40 s" in chart
