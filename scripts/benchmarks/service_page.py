"""What the service's pages cost: how soon an event is to be seen, and how long lists and long runs take to open."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from scripts.benchmarks.table import Row, at_most
from tests.report_page.browser import chromium, running
from tests.service.http.servers import Tenant
from tests.service.http.servers import running as serving
from tests.service.nursery import running as nursing
from tests.service.web.person import Person
from tests.service.web.rows import history, many, rollout
from tests.service.web.rows import running as begun

EVENTS = 100
OPENINGS = 5
SEEN_MS = 100
OPEN_MS = 2000
VALIDATIONS = 500
ROLLOUTS = 5000

NOTE = """
window.seen = {};
new MutationObserver(() => {
    const at = performance.timeOrigin + performance.now();
    for (const row of document.querySelectorAll('.newest tbody th')) window.seen[row.textContent] ??= at;
}).observe(document.querySelector('#progress'), { childList: true, subtree: true });
"""
"""Notes when each rollout is in the page, by the clock of the machine."""


async def measure() -> list[Row]:
    """Measure and return rows; none without Chromium."""
    return _rows()


def _rows() -> list[Row]:
    if chromium() is None:
        return [Row("the service's pages", "", "no Chromium here", None, "", None)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        home, data = folder / "home", folder / "data"
        home.mkdir()
        data.mkdir()
        with (
            nursing() as nursery,
            serving(nursery, data) as server,
            server.tenant() as tenant,
            running(home) as browser,
        ):
            person = Person.of(browser.tab(), tenant)
            person.go("/validations")
            waits = _seen(person, tenant)
            many(tenant, VALIDATIONS)
            listed = statistics.median(_opened(person, "/validations", "1") for _ in range(OPENINGS))
            execution = begun(tenant)
            history(execution, (rollout(number) for number in range(ROLLOUTS)))
            there = "document.querySelector('.tiles dd').textContent === '5,000'"
            path = f"/validations/{execution.claim.job.id}"
            opened = statistics.median(_opened(person, path, there) for _ in range(OPENINGS))
    late = sorted(waits)[round(len(waits) * 0.95) - 1]
    return [
        at_most("an event written: in the page, median", statistics.median(waits), SEEN_MS),
        at_most("an event written: in the page, 95 of 100", late, SEEN_MS),
        at_most(f"the list of {VALIDATIONS} validations: open", listed, OPEN_MS),
        at_most(f"{ROLLOUTS:,} rollouts of a validation that runs: open, all of them counted", opened, OPEN_MS),
    ]


def _seen(person: Person, tenant: Tenant) -> list[float]:
    """Milliseconds from when a transaction with an event is over to when it is in the page."""
    execution = begun(tenant)
    person.go(f"/validations/{execution.claim.job.id}")
    person.reads("live", "#connection")
    person.tab.evaluate(f"{NOTE}; 0")
    written: dict[str, float] = {}
    for number in range(EVENTS):
        event = rollout(number)
        execution.tell(event)
        written[event[1]["rollout_id"]] = time.time() * 1000
        person.tab.wait(f"Object.keys(window.seen).length === {number + 1}")
    seen: dict[str, float] = person.tab.evaluate("window.seen")
    return [max(0.0, seen[name] - at) for name, at in written.items()]


def _opened(person: Person, path: str, there: str) -> float:
    """Milliseconds until a page is there with what it is about."""
    began = time.perf_counter()
    person.go(path)
    person.tab.wait(there)
    return (time.perf_counter() - began) * 1000
