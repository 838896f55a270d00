"""The parts of the page that can be read without a script: verdict, findings, tables and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from runner.report.model_calls import ModelUseFacts
from runner.report.page.charts import Span, figure, heat_row, histogram, share_bar, spread, time_line
from runner.report.page.figures import counted, duration, finite, mean, number
from runner.report.page.findings import Notice, notices
from runner.report.page.markup import Child, Markup, element, fragment
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
    return element(
        "section",
        element("h2", "Verdict", id="verdict-title", class_="unseen"),
        element(
            "p", element("strong", text, class_=f"verdict {kind}"), " ", element("span", why), class_="verdict-line"
        ),
        element(
            "dl", [element("div", element("dt", name), element("dd", value)) for name, value in facts], class_="tiles"
        ),
        id="verdict",
        aria_labelledby="verdict-title",
    )


def findings(report: Report, places: dict[str, int]) -> Markup:
    """List what was found."""
    found = notices(report)
    if not found:
        return section("findings", "Findings", element("p", "Nothing was found.", class_="quiet"))
    return section("findings", "Findings", element("ul", [_notice(one, places) for one in found], class_="notices"))


def _notice(notice: Notice, places: dict[str, int]) -> Markup:
    details = [element("li", line) for line in notice.details]
    place = places.get(notice.rollout_id) if notice.rollout_id is not None else None
    return element(
        "li",
        element("p", element("b", WORDS[notice.severity], class_="badge"), " ", notice.text),
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
        table("Time of each part of the run", ("part", "took"), steps, numbers=(1,)),
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


def surroundings(report: Report) -> Markup:
    """Show what it ran in: bundle, venv, sandbox, header audit, output outside of rollouts."""
    bundle, venv, sandbox, model, dataset = report.bundle, report.venv, report.sandbox, report.model, report.dataset
    facts = [
        ("environment", bundle.environment or "not known"),
        ("bundle", bundle.digest),
        ("made for", f"Python {bundle.python_version}, benchmax {bundle.benchmax_version}"),
        ("requires", ", ".join(bundle.pip_dependencies) or "nothing beyond benchmax"),
        ("model", f"{model.name} ({model.kind}) at {model.base_url}"),
        ("dataset", f"{dataset.split} of {dataset.path}, {counted(dataset.examples, 'example')}"),
        ("venv", f"{venv.path} ({venv.python}; {venv.installer}; key {venv.key})"),
    ]
    confined = [
        ("level", sandbox.level),
        ("network", sandbox.network),
        ("data", sandbox.data or "not known"),
        ("user id", str(sandbox.uid)),
        ("hash seed", sandbox.hash_seed),
        ("credentials", sandbox.credentials),
        ("secrets handed in", ", ".join(sandbox.secrets) or "none"),
    ]
    endpoints = [
        (place.endpoint, f"{place.connections:,}", f"{place.failed:,}", place.reason) for place in sandbox.endpoints
    ]
    packages = [*venv.packages.items()]
    output = [
        disclosure(f"Output of {name} outside of rollouts", element("pre", text, tabindex=0))
        for name, text in report.worker_output.items()
        if text
    ]
    return section(
        "surroundings",
        "Run",
        _terms(facts),
        element("h3", "Sandbox"),
        _terms(confined),
        _listing("Mechanisms in force", sandbox.mechanisms),
        _listing("Not limited", sandbox.not_limited),
        table("Places that could be reached", ("place", "connections", "failed", "why"), endpoints, numbers=(1, 2))
        if endpoints
        else None,
        element("h3", "Header audit"),
        _audit(report),
        element("h3", "Packages"),
        disclosure(
            f"{counted(len(packages), 'installed package')}",
            element(
                "ul",
                [element("li", name, " ", element("span", version)) for name, version in packages],
                class_="names",
            ),
        ),
        [element("h3", "Output"), output] if output else None,
    )


def _audit(report: Report) -> Markup:
    headers = report.headers
    own = "rollout’s own"
    counts = [
        (found.binding if found.binding is not None else own, found.origin, found.verdict, f"{found.count:,}")
        for found in headers.counts
    ]
    refused = [
        (
            one.verdict,
            one.binding if one.binding is not None else own,
            one.rollout_id,
            one.base_url,
            one.model,
            one.reason,
        )
        for one in headers.refused
    ]
    told = f"{counted(headers.answered, 'request was', 'requests were')} answered, {headers.not_answered:,} not."
    heads = ("verdict", "binding", "rollout", "URL", "model", "reason")
    return fragment(
        element("p", told),
        table("Header requests", ("binding", "place", "verdict", "requests"), counts, numbers=(3,)) if counts else None,
        table("The newest that got no headers", heads, refused) if refused else None,
    )


def examples_listed(report: Report) -> Markup:
    """List the first examples where no script runs."""
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


def section(name: str, title: str, *children: Child) -> Markup:
    """Make a part of the page with a title."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], *, numbers: Sequence[int] = ()
) -> Markup:
    """Make a table whose first cells are the heads of their rows; `numbers` are the columns that hold some."""

    def kind(place: int) -> str | None:
        return "number" if place in numbers else None

    head = [
        element("th", title, scope="col", class_=kind(place)) if title else element("td")
        for place, title in enumerate(heads)
    ]
    body = [
        element(
            "tr",
            [
                element("td", cell, class_=kind(place)) if place else element("th", cell, scope="row")
                for place, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    # it may be wider than the page; who has no mouse scrolls it by keys
    return element("div", made, class_="scroll", role="region", aria_label=caption, tabindex=0)


def disclosure(title: str, *children: Child) -> Markup:
    """Make a part that is opened when it is wanted."""
    return element("details", element("summary", title), *children)


def title_of(report: Report) -> str:
    """Return what the page is called."""
    name = one_line(report.bundle.environment, 80) or "a bundle"
    return f"{name}: {report.ok} of {report.expected} rollouts ended well"


def _terms(facts: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in facts], class_="terms"
    )


def _listing(title: str, lines: Sequence[str]) -> Markup | None:
    if not lines:
        return None
    return fragment(element("h4", title), element("ul", [element("li", line) for line in lines], class_="names"))
