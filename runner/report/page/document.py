"""Puts the page together: one file with style, script and data inside, which may load nothing and run nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.artifact import write_atomically
from runner.report.page import embedding, sections
from runner.report.page.markup import Markup, element, fragment
from runner.report.page.surroundings import surroundings
from runner.report.value import Report
from runner.text import one_line

ASSETS: Final = Path(__file__).parent / "assets"

STYLES: Final = ("base", "page")
"""The style's parts, in order; other pages of ours begin with the first as well."""

SCRIPTS: Final = ("elements", "store", "grid", "search", "images", "transcript", "detail", "lists", "start")
"""The script's parts, in order; together they are one function, so that none of their names is global."""

FINDINGS: Final = ("findings", "Findings")
ROLLOUTS: Final = (
    ("rewards", "Rewards"),
    ("endings", "Endings"),
    ("rollouts", "Rollouts"),
    ("performance", "Tokens and time"),
)
SURROUNDINGS: Final = ("surroundings", "Run")
"""Names and titles of the parts, for the links to them."""


def write_page(report: Report, path: Path) -> None:
    """Write a report as a page: whole, or not at all.

    Raises:
        OSError: as the operating system says.
    """
    write_atomically(path, page(report))


def page(report: Report) -> bytes:
    """Return a report as an HTML file that needs nothing beside itself.

    Equal reports give equal bytes.
    """
    return document(
        title=sections.title_of(report),
        made_of=f"report format {report.format}",
        heading=one_line(report.bundle.environment) or "Report of a run",
        line=one_line(f"{report.model.name} on {report.dataset.split}"),
        links=(FINDINGS, *ROLLOUTS, SURROUNDINGS),
        parts=(
            sections.verdict(report),
            sections.findings(report, embedding.places(report)),
            *on_rollouts(report),
            surroundings(report, report.headers, report.worker_output),
        ),
        report=report,
    )


def on_rollouts(report: Report) -> tuple[Markup, ...]:
    """Make the parts that are about rollouts."""
    return sections.rewards(report), sections.endings(report), sections.rollouts(report), sections.performance(report)


def document(
    *,
    title: str,
    made_of: str,
    heading: str,
    line: str,
    links: Sequence[tuple[str, str]],
    parts: Sequence[Markup],
    report: Report | None,
) -> bytes:
    """Return a page.

    Args:
        title: What a browser calls it.
        made_of: The kind and format of the value that it shows.
        heading: What it is about.
        line: More of that.
        links: Names of parts with their titles, to be reached from the top.
        parts: What can be read without a script.
        report: The rollouts that the script lists; `None` where none ran.
    """
    style = "".join((ASSETS / f"{name}.css").read_text("utf-8") for name in STYLES)
    scripts = "\n".join((ASSETS / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    head = element(
        "head",
        element("meta", charset="utf-8"),
        # before anything that it is about
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"benchmax {made_of}"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        _header(heading, line, links),
        element("main", parts, id="main", tabindex=-1),
        None if report is None else [embedding.table(report), embedding.chunks(report)],
        element("script", Markup(script)),
    )
    whole = fragment(Markup("<!doctype html>\n"), element("html", head, body, lang="en"), Markup("\n"))
    return whole.encode()


def _header(heading: str, line: str, links: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "header",
        element("a", "To the content", href="#main", class_="skip"),
        element("div", element("h1", heading), element("p", line, class_="quiet"), class_="title"),
        element(
            "nav",
            element("ul", [element("li", element("a", title, href=f"#{name}")) for name, title in links]),
            aria_label="Parts of the report",
        ),
        element("div", id="switches", class_="switches"),
    )


def _policy(script: str, style: str) -> str:
    """Nothing is loaded, nothing is sent, and no script runs but ours, which cannot make markup of text either."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
