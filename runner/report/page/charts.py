"""Charts in plain SVG: drawn to be stretched, with their labels beside them as text that is readable at any width."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from runner.report.page.figures import counted, finite, fraction, mean, number
from runner.report.page.markup import Markup, element

BINS: Final = 24
"""Bars of a histogram."""

STEPS: Final = 400
"""Points of a line, and columns of a heat map, at most: more are narrower than a pixel."""

LEVELS: Final = 7
"""Shades of a heat map; more cannot be told apart."""

LANES: Final = 200
"""Rollouts that have a line of their own in the time line, at most."""

Show = Callable[[float], str]


class Span(NamedTuple):
    """When a rollout ran: from, to, in seconds since the run began, and whether it ended well."""

    begin: float
    end: float
    ok: bool


def histogram(title: str, values: Sequence[float | None], *, show: Show = number) -> Markup:
    """Draw how values are spread.

    Args:
        title: What they are.
        values: Those that are no finite numbers are left out and counted.
        show: Writes one of them.
    """
    known = finite(values)
    left_out = len(values) - len(known)
    if not known:
        return figure(title, Markup(), "no values", "")
    low, high = min(known), max(known)
    counts = _binned(known, low, high)
    most = max(counts)
    width = 1000 / len(counts)
    bars = [
        element(
            "rect",
            element("title", _bar_title(low, high, place, len(counts), count, show)),
            class_="bar",
            x=_at(place * width + 20 / len(counts)),
            y=_at(100 - 100 * count / most),
            width=_at(width - 40 / len(counts)),
            height=_at(100 * count / most),
        )
        for place, count in enumerate(counts)
        if count
    ]
    facts = f"mean {show(mean(known))} · median {show(statistics.median(known))} · {counted(len(known), 'value')}"
    if left_out:
        facts += f" · {left_out:,} not drawn: no finite number"
    if len(counts) == 1:
        return figure(title, svg(f"{title}: all {show(low)}", 1000, 100, bars), facts, element("span", show(low)))
    where = 1000 * fraction(mean(known), low, high)
    bars.append(element("path", class_="mark", d=f"M{_at(where)} 0V100"))
    text = f"{title}: from {show(low)} to {show(high)}, {facts}"
    ends = [element("span", show(low)), element("span", show(high))]
    return figure(title, svg(text, 1000, 100, bars), facts, ends)


def spread(title: str, groups: Sequence[Sequence[float | None]]) -> Markup:
    """Draw for each group how far its values are apart, groups sorted by their mean."""
    known = sorted((found for found in map(finite, groups) if found), key=mean)
    if not known:
        return figure(title, Markup(), "no values", "")
    low, high = min(map(min, known)), max(map(max, known))
    apart = sum(max(group) > min(group) for group in known)
    known = known[:: -(-len(known) // STEPS)]

    def height(value: float) -> str:
        return _at(98 - 96 * fraction(value, low, high))

    lines = "".join(f"M{place}.5 {height(min(group))}V{height(max(group))}" for place, group in enumerate(known))
    means = "".join(f"M{place}.2 {height(mean(group))}h.6" for place, group in enumerate(known))
    facts = f"{apart:,} of {counted(len(groups), 'example')} differ within their group"
    shapes = [element("path", class_="range", d=lines), element("path", class_="mean", d=means)]
    text = f"{title} of each example, sorted by mean, from {number(low)} to {number(high)}: {facts}"
    return figure(
        title,
        svg(text, len(known), 100, shapes),
        facts,
        [element("span", f"{number(low)} … {number(high)} ↑"), element("span", "examples by mean →")],
    )


def heat_row(name: str, means: Sequence[float | None]) -> Markup:
    """Draw one row of a heat map: a column for each example, shaded from the row's lowest mean to its highest."""
    columns = [_mean(means[at : at + _per_column(len(means))]) for at in range(0, len(means), _per_column(len(means)))]
    known = finite(columns)
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    shades: dict[int, list[str]] = {}
    place = 0
    for shade, cells in groupby(columns, lambda value: _shade(value, low, high)):
        length = len([*cells])
        if shade is not None:
            shades.setdefault(shade, []).append(f"M{place} 0h{length}v1h-{length}z")
        place += length
    paths = [element("path", class_=f"heat{shade}", d="".join(parts)) for shade, parts in sorted(shades.items())]
    text = f"{name}: mean of each example, from {number(low)} to {number(high)}" if known else f"{name}: no values"
    return svg(text, max(1, len(columns)), 1, paths, class_="strip")


def time_line(spans: Sequence[Span], *, end: float, show: Show) -> Markup:
    """Draw how many rollouts ran at once, and when each of them did if they are not too many."""
    changes = sorted([(span.begin, 1) for span in spans] + [(span.end, -1) for span in spans])
    end = max(end, changes[-1][0], 1e-9)
    steps = [0] * (STEPS + 1)
    running = most = 0
    last = 0
    for moment, change in changes:
        place = min(STEPS, int(moment / end * STEPS))
        for passed in range(last + 1, place + 1):
            steps[passed] = running
        last = place
        running += change
        most = max(most, running)
        steps[place] = max(steps[place], running)
    line = "".join(f"L{place} {_at(100 - 98 * count / max(most, 1))}h1" for place, count in enumerate(steps[:-1]))
    shape = element("path", class_="area", d=f"M0 100{line}V100z")
    facts = f"at most {counted(most, 'rollout')} at once"
    text = f"Rollouts running at the same time, over {show(end)}: {facts}"
    ends = [element("span", "0 s"), element("span", show(end / 2)), element("span", show(end))]
    charts = [figure("Rollouts running at once", svg(text, STEPS, 100, shape), facts, ends)]
    if len(spans) <= LANES:
        ordered = sorted(spans)
        lanes = [
            element(
                "path",
                class_=kind,
                d="".join(
                    _lane(1000 * (span.begin / end), 1000 * (span.end / end), lane)
                    for lane, span in enumerate(ordered)
                    if span.ok is ok
                ),
            )
            for kind, ok in (("lane", True), ("lane bad", False))
        ]
        text = f"When each of {counted(len(spans), 'rollout')} ran, in the order in which they began"
        drawn = svg(text, 1000, len(ordered), lanes, class_="lanes")
        charts.append(figure("Each rollout", drawn, "in the order in which they began; dashed: did not end well", ends))
    return Markup("".join(charts))


def share_bar(share: float, *, bad: bool) -> Markup:
    """Draw a part of a whole as a bar; the number stands beside it, so it says nothing to who cannot see it."""
    bar = element("rect", class_="bar bad" if bad else "bar", x=0, y=0, width=_at(100 * share), height=10)
    return element("svg", bar, class_="share", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def svg(text: str, width: int, height: int, shapes: Markup | Sequence[Markup], *, class_: str = "plot") -> Markup:
    """Put shapes into a drawing that fills the place it is given; `text` is read out instead of it."""
    return element(
        "svg",
        shapes,
        class_=class_,
        role="img",
        aria_label=text,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
    )


def figure(title: str, drawing: Markup, facts: str, axis: Markup | Sequence[Markup] | str) -> Markup:
    """Put a drawing between its title and what there is to read beside it."""
    return element(
        "figure",
        element("figcaption", element("b", title), element("span", facts)),
        drawing,
        element("div", axis, class_="axis") if axis else None,
    )


def _lane(begin: float, end: float, lane: int) -> str:
    # however short, it is to be seen
    return f"M{_at(begin)} {lane}.5H{_at(max(end, begin + 1))}"


def _binned(values: Sequence[float], low: float, high: float) -> list[int]:
    if high <= low:
        return [len(values)]
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(fraction(value, low, high) * BINS))] += 1
    return counts


def _bar_title(low: float, high: float, place: int, bins: int, count: int, show: Show) -> str:
    if bins == 1:
        return f"{show(low)}: {count:,}"
    width = high / bins - low / bins
    return f"{show(low + place * width)} to {show(low + (place + 1) * width)}: {count:,}"


def _per_column(examples: int) -> int:
    return max(1, -(-examples // STEPS))


def _mean(values: Sequence[float | None]) -> float | None:
    known = finite(values)
    return mean(known) if known else None


def _shade(value: float | None, low: float, high: float) -> int | None:
    if value is None:
        return None
    return min(LEVELS - 1, int(fraction(value, low, high) * LEVELS))


def _at(value: float) -> str:
    """A coordinate; a hundredth of a unit is less than a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
