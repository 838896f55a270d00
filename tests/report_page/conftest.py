"""A browser for all tests of a process, and pages for it to open."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.artifact import write_atomically
from runner.report import Report
from runner.report.page import page, validation_page
from runner.validation import Verdict
from tests.conftest import require
from tests.report_page.browser import Browser, Tab, chromium, running


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that the browser's unprivileged user can read, unlike those that pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="benchmax-pages-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def browser(open_folder: Path) -> Iterator[Browser]:
    """A running Chromium."""
    require(chromium(), "chromium (Debian's package chromium)")
    home = open_folder / "home"
    home.mkdir()
    with running(home) as started:
        yield started


@pytest.fixture(scope="session")
def shared_tab(browser: Browser) -> Tab:
    """The one tab there is: another would be another process."""
    return browser.tab()


@pytest.fixture
def tab(shared_tab: Tab) -> Iterator[Tab]:
    """A tab as it is when nobody has asked anything special of it."""
    yield shared_tab
    shared_tab.reset()


@pytest.fixture
def opened(tab: Tab, open_folder: Path) -> Callable[..., Tab]:
    """Open a report or a verdict as a page and return the tab."""

    def opened(shown: Report | Verdict, *, ready: bool = True) -> Tab:
        path = open_folder / "report.html"
        write_atomically(path, page(shown) if isinstance(shown, Report) else validation_page(shown))
        tab.open(path, ready=ready)
        return tab

    return opened
