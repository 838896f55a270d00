"""`benchmax run --report` and `benchmax report`: the page on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.report import Report
from runner.report.page import page
from tests.integration.command_line import CommandLine
from tests.integration.conftest import shared_cache as shared_cache
from tests.report_page.reports import report

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def test_a_run_writes_its_report_as_a_page_and_the_json_gives_the_same_page(benchmax: CommandLine) -> None:
    benchmax.artifact()
    out = benchmax.cwd / "out"
    out.mkdir()
    finished = benchmax("run", "artifact", "--group-size", "2", "--report", "out/a.html", "--json-out", "out/a.json")
    assert finished.good().splitlines()[-2:] == ["report: out/a.json", "report: out/a.html"]
    found = Report.from_json((out / "a.json").read_bytes())
    assert (out / "a.html").read_bytes() == page(found)
    for outcome in found.outcomes:
        assert outcome.began is not None
        assert outcome.seconds is not None
        assert outcome.began >= 0
        assert outcome.began + outcome.seconds <= found.timings["total_s"] + 0.001
    again = benchmax("report", "out/a.json", "--html", "out/b.html").good()
    assert again.splitlines()[-1] == "page: out/b.html"
    assert (out / "b.html").read_bytes() == (out / "a.html").read_bytes()


def test_a_report_is_shown_again_as_a_table_or_as_json(benchmax: CommandLine) -> None:
    (benchmax.cwd / "r.json").write_bytes(report().to_json())
    assert "1 ok · 1 failed · 4 missing of 6 rollouts" in benchmax("report", "r.json").good()
    shown = benchmax("report", "r.json", "--json", "--html", "p.html", makes="p.html")
    assert shown.good().encode() == report().to_json()


def test_a_page_of_a_record_is_made_of_its_report(benchmax: CommandLine) -> None:
    benchmax.artifact()
    benchmax("run", "artifact", "--max-examples", "1", "--group-size", "1", "--record", "kept", makes="kept").good()
    benchmax("report", "kept", "--html", "p.html", makes="p.html").good()
    assert b"All 1 rollout ended well." in (benchmax.cwd / "p.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "artifact", "--report", "nowhere/p.html"), "cannot write --report nowhere/p.html: No such file"),
        (("run", "artifact", "--report", "artifact"), "cannot write --report artifact: Is a directory"),
        (("report", "r.json", "--html", "nowhere/p.html"), "cannot write --html nowhere/p.html: No such file"),
        (("report", "missing.json"), "no run at missing.json"),
        (("report", "artifact/env-metadata.json"), "artifact/env-metadata.json is no report"),
    ],
)
def test_what_cannot_be_read_or_written_is_found_first(
    benchmax: CommandLine, arguments: tuple[str, ...], text: str
) -> None:
    benchmax.artifact()
    (benchmax.cwd / "r.json").write_bytes(report().to_json())
    finished = benchmax(*arguments)
    assert text in finished.error(2)
    assert "[" not in finished.err, "something was begun"
