"""Puts the page together: one file with style, script and data inside, which may load nothing and run nothing else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

from runner.artifact import write_atomically
from runner.report.page import embedding, sections
from runner.report.page.markup import Markup, element, fragment
from runner.report.value import Report
from runner.text import one_line

ASSETS: Final = Path(__file__).parent / "assets"

SCRIPTS: Final = ("elements", "store", "grid", "search", "images", "transcript", "detail", "lists", "start")
"""The script's parts, in order; together they are one function, so that none of their names is global."""

NAVIGATION: Final = (
    ("findings", "Findings"),
    ("rewards", "Rewards"),
    ("endings", "Endings"),
    ("rollouts", "Rollouts"),
    ("performance", "Tokens and time"),
    ("surroundings", "Run"),
)


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
    style = (ASSETS / "page.css").read_text("utf-8")
    parts = "\n".join((ASSETS / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    head = element(
        "head",
        element("meta", charset="utf-8"),
        # before anything that it is about
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"benchmax report format {report.format}"),
        element("title", sections.title_of(report)),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        _header(report),
        element(
            "main",
            sections.verdict(report),
            sections.findings(report, embedding.places(report)),
            sections.rewards(report),
            sections.endings(report),
            sections.section(
                "rollouts", "Rollouts", sections.examples_listed(report), element("div", id="lists", hidden=True)
            ),
            sections.performance(report),
            sections.surroundings(report),
            id="main",
            tabindex=-1,
        ),
        embedding.table(report),
        *embedding.chunks(report),
        element("script", Markup(script)),
    )
    document = fragment(Markup("<!doctype html>\n"), element("html", head, body, lang="en"), Markup("\n"))
    return document.encode()


def _header(report: Report) -> Markup:
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in NAVIGATION]
    model = one_line(f"{report.model.name} on {report.dataset.split}")
    return element(
        "header",
        element("a", "To the content", href="#main", class_="skip"),
        element(
            "div",
            element("h1", one_line(report.bundle.environment) or "Report of a run"),
            element("p", model, class_="quiet"),
            class_="title",
        ),
        element("nav", element("ul", links), aria_label="Parts of the report"),
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
