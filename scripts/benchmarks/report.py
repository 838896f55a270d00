"""What the page of a report costs: to make, to keep, to open in a browser, to search."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from runner.report import Report
from runner.report.page import page
from scripts.benchmarks.table import Row, at_most
from tests.report_page.browser import Browser, chromium, running
from tests.report_page.reports import many

OPENINGS = 7
OPEN_MS = 2000
BYTES = 2000
"""What a rollout may take in the file, beside what was said in it."""


async def measure() -> list[Row]:
    """Measure and return rows; without Chromium only those that need none."""
    return _rows()


def _rows() -> list[Row]:
    silent, small, large = many(1250, transcripts=False), many(1250), many(5000)
    took, kept = _made(silent)
    per_rollout = kept / len(silent.outcomes)
    rows = [
        Row(
            "5,000 rollouts that said nothing: file, bytes per rollout",
            f"{per_rollout:.0f}",
            f"{BYTES}",
            per_rollout / BYTES,
            f"≤ {BYTES} bytes",
            per_rollout <= BYTES,
        )
    ]
    for what, made in (("5,000 rollouts", small), ("20,000 rollouts", large)):
        took, kept = _made(made)
        rows.append(Row(f"{what} of 800 characters: page made (s)", f"{took:.2f}", "", None, "", None))
        rows.append(Row(f"{what} of 800 characters: file (MB)", f"{kept / 1e6:.1f}", "", None, "", None))
    if chromium() is None:
        return [*rows, Row("opened in Chromium", "", "no Chromium here", None, "", None)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir()
        with running(home) as browser:
            rows.append(at_most("5,000 rollouts: opened in Chromium", _opened(browser, small, folder), OPEN_MS))
            opened = _opened(browser, large, folder)
            rows.append(Row("20,000 rollouts: opened in Chromium (ms)", f"{opened:.1f}", "", None, "", None))
            searched = _searched(browser, small, folder)
            rows.append(Row("5,000 rollouts: all transcripts searched (ms)", f"{searched:.0f}", "", None, "", None))
    return rows


def _made(report: Report) -> tuple[float, int]:
    """Seconds it takes to make a page, and its size."""
    began = time.perf_counter()
    size = len(page(report))
    return time.perf_counter() - began, size


def _opened(browser: Browser, report: Report, folder: Path) -> float:
    """Milliseconds until a page in a file can be used."""
    path = folder / "report.html"
    path.write_bytes(page(report))
    tab = browser.tab()
    try:
        return statistics.median(tab.open(path) for _ in range(OPENINGS)) * 1000
    finally:
        tab.close()


def _searched(browser: Browser, report: Report, folder: Path) -> float:
    """Milliseconds until what only transcripts hold is found in all of them."""
    path = folder / "report.html"
    path.write_bytes(page(report))
    tab = browser.tab()
    try:
        tab.open(path)
        tab.evaluate("document.querySelector('.filters input[type=checkbox]').click()")
        tab.press("/")
        began = time.perf_counter()
        tab.tell("Input.insertText", text='"question 123"')
        tab.wait("document.querySelector('.count').innerText.startsWith('44 of')")
        return (time.perf_counter() - began) * 1000
    finally:
        tab.close()
