"""`docs/validating.md` names every check and every kind of finding there is, as the code has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from benchmax.bundle.findings.finding import CODES
from runner.gateway.findings import Code
from runner.validation.codes import CHECKS, ESSENTIAL, KINDS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "validating.md").read_text("utf-8")


def rows(columns: int) -> list[list[str]]:
    cells = [[*map(str.strip, line.strip("|").split(" | "))] for line in DOCUMENT.splitlines() if "| `" in line]
    return [row for row in cells if len(row) == columns]


def test_every_check_is_described_as_in_the_code() -> None:
    assert rows(2) == [[f"`{name}`", text] for name, text in CHECKS.items()]


def test_every_kind_of_finding_is_described_as_in_the_code() -> None:
    expected = [[f"`{code}`", kind.severity, f"`{kind.check}`", kind.meaning] for code, kind in KINDS.items()]
    assert rows(4) == expected


def test_every_finding_comes_from_a_check_there_is() -> None:
    assert {kind.check for kind in KINDS.values()} <= {*CHECKS}
    assert {*ESSENTIAL} <= {*CHECKS}


def test_a_code_that_an_author_is_told_too_means_the_same_here() -> None:
    both = {"secret-captured", "environment-captured", "undeclared-dependency", "delayed-import", "does-not-load"}
    assert both == CODES & KINDS.keys()


def test_every_diagnostic_of_a_session_is_a_kind_of_finding() -> None:
    assert {*get_args(Code)} == {code for code, kind in KINDS.items() if kind.check == "contract"}


def test_the_limits_that_the_document_names_are_those_of_the_plan() -> None:
    from runner.validation.plan import CONTEXT_TOKENS, ROLLOUT_S

    assert f"{CONTEXT_TOKENS:,} tokens" in DOCUMENT
    assert re.search(rf"\b{ROLLOUT_S:g} seconds", DOCUMENT)
