"""The parts of the page of a run that can be read without a script: verdict, findings, tables and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from runner.report.model_calls import ModelUseFacts
from runner.report.page.blocks import disclosure, judgement, section, table
from runner.report.page.charts import Span, figure, heat_row, histogram, share_bar, spread, time_line
from runner.report.page.figures import counted, duration, finite, mean, number
from runner.report.page.findings import Notice, notices
from runner.report.page.markup import Child, Markup, element
from runner.report.value import Report
from runner.text import one_line

MAX_CHARTS: Final = 24
"""Reward components that are drawn; more are not looked at."""

MAX_COMPONENTS: Final = 200
"""Reward components that have a row; all of them are with each rollout."""

MAX_REASONS: Final = 100
"""Termination reasons that have a row; an environment has a handful."""

MAX_GROUPS: Final = 60
"""Examples listed where no script runs."""

PARTS: Final = {
    "start_s": "start: venv, worker, model",
    "dataset_s": "dataset",
    "rollouts_s": "rollouts",
    "total_s": "all of it",
}
"""What the parts of a run are called."""

WORDS: Final = {"error": "Error", "warning": "Warning", "note": "Note"}


def verdict(report: Report) -> Markup:
    """Say how it went."""
    text, kind = ("Good", "good") if report.good else ("Not good", "bad")
    if report.good:
        why = f"All {counted(report.expected, 'rollout')} ended well."
    elif report.ok == report.expected:
        why = f"All {counted(report.expected, 'rollout')} ended well, but see what was found."
    else:
        why = f"{report.ok:,} of {counted(report.expected, 'rollout')} ended well."
    seconds = [outcome.seconds for outcome in report.outcomes]
    use = report.model_use()
    facts: list[tuple[str, str]] = [
        ("ended well", f"{report.ok:,}"),
        ("failed", f"{report.failed:,}"),
        ("missing", f"{report.missing:,}"),
        ("examples", f"{len(report.groups):,}"),
        ("took", duration(report.timings.get("total_s", 0.0))),
    ]
    if known := finite(seconds):
        facts.append(("per rollout", duration(mean(known))))
    if use is not None:
        facts.append(("model calls", f"{use.calls:,}"))
        facts.append(("tokens", ("≈ " if use.estimated else "") + number(use.total_tokens)))
    return judgement(text, kind, why, facts)


def findings(report: Report, places: Mapping[str, int]) -> Markup:
    """List what was found."""
    return section("findings", "Findings", listed(notices(report), places))


def listed(found: Sequence[Notice], places: Mapping[str, int]) -> Markup:
    """List notices.

    Args:
        found: What was found.
        places: Of each rollout, by its id, in the page's table.
    """
    if not found:
        return element("p", "Nothing was found.", class_="quiet")
    return element("ul", [_notice(one, places) for one in found], class_="notices")


def _notice(notice: Notice, places: Mapping[str, int]) -> Markup:
    details = [element("li", line) for line in notice.details]
    place = places.get(notice.rollout_id) if notice.rollout_id is not None else None
    return element(
        "li",
        element(
            "p",
            element("b", WORDS[notice.severity], class_="badge"),
            " ",
            [element("code", notice.code), " "] if notice.code else None,
            notice.text,
        ),
        element("p", element("b", "Next:"), " ", notice.step) if notice.step else None,
        element("ul", details, class_="details") if details else None,
        [disclosure(title, element("pre", text, tabindex=0)) for title, text in notice.tracebacks],
        # the script makes it a button
        element("p", f"rollout {notice.rollout_id}", class_="quiet", data_rollout=place) if place is not None else None,
        class_=f"notice {notice.severity}",
    )


def rewards(report: Report) -> Markup:
    """Show reward components: a table, and charts of the first."""
    outcomes = report.outcomes
    components = report.components()
    if not components:
        return section("rewards", "Rewards", element("p", "No rollout has a reward.", class_="quiet"))
    means = {name: _group_values(report, name) for name in [*components][:MAX_CHARTS]}
    rows = []
    for name, (average, count) in [*components.items()][:MAX_COMPONENTS]:
        values = finite(outcome.rewards.get(name) for outcome in outcomes)
        drawn = (
            heat_row(one_line(name), [mean(group) if group else None for group in means[name]])
            if name in means
            else "–"
        )
        lowest, highest = (number(min(values)), number(max(values))) if values else ("–", "–")
        rows.append((one_line(name), number(average), lowest, highest, f"{count:,}", drawn))
    heads = ("component", "mean", "lowest", "highest", "rollouts", "mean of each example")
    charts = []
    for name, groups in means.items():
        charts.append(
            histogram(one_line(name), [outcome.rewards[name] for outcome in outcomes if name in outcome.rewards])
        )
        charts.append(spread(one_line(name), groups))
    legend = element(
        "p",
        "Right: one column per example, in order; from ",
        element("span", "lowest", class_="legend heat0"),
        " to ",
        element("span", "highest", class_="legend heat6"),
        " mean of the component. Below: how its values are spread over rollouts (line: mean), and how far they are "
        "apart within each example’s group.",
        class_="quiet",
    )
    more = len(components) - MAX_COMPONENTS
    return section(
        "rewards",
        "Rewards",
        table("Reward components", heads, rows, numbers=range(1, 5)),
        element("p", f"{more:,} more components are with each rollout.", class_="quiet") if more > 0 else None,
        legend,
        element("div", charts, class_="charts"),
    )


def _group_values(report: Report, name: str) -> list[list[float]]:
    return [finite(outcome.rewards.get(name) for outcome in group.outcomes) for group in report.groups]


def endings(report: Report) -> Markup:
    """Show in which reasons rollouts ended."""
    reasons = report.reasons()
    good = Counter(outcome.termination_reason for outcome in report.outcomes if outcome.ok)
    ours = {outcome.termination_reason for outcome in report.outcomes if outcome.origin == "runner"}
    total = max(1, report.expected)
    rows: list[Sequence[Child]] = [
        (
            element("span", one_line(reason), data_reason=place),
            f"{count:,}",
            f"{100 * count / total:.1f} %",
            f"{good[reason]:,}",
            "runner" if reason in ours else "environment",
            share_bar(count / total, bad=good[reason] < count),
        )
        for place, (reason, count) in enumerate(reasons.most_common(MAX_REASONS))
    ]
    if report.missing:
        share = report.missing / total
        missing = f"{report.missing:,}"
        rows.append(("no outcome", missing, f"{100 * share:.1f} %", "0", "–", share_bar(share, bad=True)))
    heads = ("reason", "rollouts", "share", "ended well", "chosen by", "")
    more = len(reasons) - MAX_REASONS
    return section(
        "endings",
        "Endings",
        table("Termination reasons", heads, rows, numbers=range(1, 4)),
        element("p", f"{more:,} more reasons are with their rollouts.", class_="quiet") if more > 0 else None,
    )


def performance(report: Report) -> Markup:
    """Show times and tokens, and when what ran."""
    outcomes = report.outcomes
    charts = [
        histogram("Seconds per rollout", [one.seconds for one in outcomes if one.seconds is not None], show=duration)
    ]
    uses = [one.model_use for one in outcomes if one.model_use is not None]
    if uses:
        charts += _usage(uses)
    # a rollout's end is what the run saw, so one may seem to begin a little before it
    spans = [
        Span(max(0.0, one.began), max(0.0, one.began) + max(0.0, one.seconds), one.ok)
        for one in outcomes
        if one.began is not None and one.seconds is not None and finite([one.began + one.seconds])
    ]
    line = (
        time_line(spans, end=report.timings.get("total_s", 0.0), show=duration)
        if spans
        else element("p", "When rollouts ran is not in this report.", class_="quiet")
    )
    steps = [(PARTS.get(name, name), duration(value)) for name, value in report.timings.items()]
    return section(
        "performance",
        "Tokens and time",
        element("div", charts, class_="charts"),
        element("div", line, class_="wide-charts"),
        table("Time of each part of the run", ("part", "took"), steps, numbers=(1,)) if steps else None,
    )


def _usage(uses: Sequence[ModelUseFacts]) -> list[Markup]:
    latencies = [seconds for use in uses for seconds in use.seconds]
    charts = [
        histogram("Model calls per rollout", [use.calls for use in uses]),
        histogram("Prompt tokens per rollout", [use.prompt_tokens for use in uses]),
        histogram("Completion tokens per rollout", [use.completion_tokens for use in uses]),
    ]
    if latencies:
        charts.append(histogram("Latency of a model call", latencies, show=duration))
    failed = sum(use.failed for use in uses)
    if failed:
        share = share_bar(failed / max(1, sum(use.calls for use in uses)), bad=True)
        charts.append(figure("Model calls that failed", share, f"{failed:,}", ""))
    return charts


def rollouts(report: Report) -> Markup:
    """Make room for the lists, which the script makes, and list the first examples where none runs."""
    return section("rollouts", "Rollouts", _examples(report), element("div", id="lists", hidden=True))


def _examples(report: Report) -> Markup:
    names = [*report.components()][:8]
    rows = []
    for group in report.groups[:MAX_GROUPS]:
        ok = sum(outcome.ok for outcome in group.outcomes)
        cells = []
        for name in names:
            values = finite(outcome.rewards.get(name) for outcome in group.outcomes)
            cells.append(number(mean(values)) if values else "–")
        rows.append((f"{group.position}", group.example_id, f"{ok} of {group.rollouts}", *cells))
    more = len(report.groups) - MAX_GROUPS
    return element(
        "noscript",
        element("p", "Without scripts there are no transcripts here, and these examples only."),
        table(
            "Examples",
            ("position", "example", "ended well", *map(one_line, names)),
            rows,
            numbers=range(3, 3 + len(names)),
        ),
        element("p", f"… {more:,} more") if more > 0 else None,
    )


def title_of(report: Report) -> str:
    """Return what the page is called."""
    name = one_line(report.bundle.environment, 80) or "a bundle"
    return f"{name}: {report.ok} of {report.expected} rollouts ended well"
