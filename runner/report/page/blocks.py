"""What parts of the page are made of: a part with its title, tables, lists, and what is opened when it is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from runner.report.page.markup import Child, Markup, element, fragment


def section(name: str, title: str, *children: Child) -> Markup:
    """Make a part of the page with a title."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def judgement(text: str, kind: str, why: str, facts: Sequence[tuple[str, str]]) -> Markup:
    """Make the part that comes first.

    Args:
        text: What it comes to, in a word or two.
        kind: `good`, `bad` or `open`.
        why: One sentence.
        facts: What can be said in numbers, by name.
    """
    tiles = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    return element(
        "section",
        element("h2", "Verdict", id="verdict-title", class_="unseen"),
        element(
            "p", element("strong", text, class_=f"verdict {kind}"), " ", element("span", why), class_="verdict-line"
        ),
        element("dl", tiles, class_="tiles"),
        id="verdict",
        aria_labelledby="verdict-title",
    )


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


def terms(facts: Sequence[tuple[str, str]]) -> Markup:
    """List facts by name."""
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in facts], class_="terms"
    )


def listing(title: str, lines: Sequence[str]) -> Markup | None:
    """List lines below a title, if there are any."""
    if not lines:
        return None
    return fragment(element("h4", title), element("ul", [element("li", line) for line in lines], class_="names"))
