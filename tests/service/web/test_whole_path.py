"""From signing in to signing out, with a real executor that judges what a person has dropped onto the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.artifact import write_artifact
from tests.integration.conftest import shared_cache as shared_cache
from tests.report_page.browser import Browser, Tab
from tests.service.cli.running import serving
from tests.service.executor.house import bundle_of
from tests.service.web.person import Person

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HEADING = """new Promise((done) => {
    const look = () => {
        if ('ready' in document.documentElement.dataset) done(document.querySelector('h1').textContent);
        else setTimeout(look, 5);
    };
    look();
})"""
"""Of a report, once it is there."""


def inside(browser: Browser, script: str) -> Any:
    """Return what an expression comes to in the report, which is a document of its own."""
    (target,) = [one for one in browser.tell("Target.getTargets", {})["targetInfos"] if one["type"] == "iframe"]
    answer = browser.tell("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
    options = {"expression": script, "returnByValue": True, "awaitPromise": True}
    return browser.tell("Runtime.evaluate", options, answer["sessionId"])["result"].get("value")


def test_from_signing_in_to_signing_out(
    tab: Tab, browser: Browser, open_folder: Path, shared_cache: Path, tmp_path: Path
) -> None:
    for name in ("Asks", "Samples"):
        write_artifact(bundle_of(name), open_folder / "bundles" / name)
    for path in (open_folder / "bundles").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with serving(tmp_path / "data", shared_cache, "--executors", "1", "--insecure-sandbox") as service:
        person = Person(tab, service.url)
        person.go("/")
        person.fill("input[name=key]", service.key(scopes=("submit", "read")))
        person.tab.led(lambda: person.tab.press("Enter"))
        made = []
        for name in ("Asks", "Samples"):
            person.follow("a[href='/validations/new']")
            person.drop("#drop", open_folder / "bundles" / name)
            person.tab.wait("document.querySelectorAll('#chosen tbody tr').length === 2")
            person.follow("#new button.main")
            made.append(person.path)
            # it is watched while it runs, and its verdict takes the place of that
            person.tab.wait("document.querySelector('.newest tbody tr, iframe.report')", patience_s=120)
            person.tab.wait("document.querySelector('iframe.report')", patience_s=120)
        assert person.text("#state").startswith("Invalid")
        assert "trainer_owned_model_control" in person.text("[aria-labelledby=findings-title]")
        person.tab.evaluate("document.querySelector('iframe').scrollIntoView()")
        assert person.tab.evaluate("document.querySelector('iframe').contentDocument") is None
        person.tab.wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/report'))")
        heading = inside(browser, HEADING)
        assert heading.endswith("Samples")
        assert person.troubles() == []
        person.follow("form[action='/compare'] button")
        assert person.texts("main section:first-of-type a") == ["Asks", "Samples"]
        assert "trainer_owned_model_control" in person.text("[aria-labelledby=findings-title]")
        assert person.troubles() == []
        # of one that waits or runs the end does not come by itself
        person.follow("a[href='/validations/new']")
        person.drop("#drop", open_folder / "bundles" / "Asks")
        person.tab.wait("document.querySelectorAll('#chosen tbody tr').length === 2")
        person.follow("#new button.main")
        person.follow("form[action$='/cancel'] button")
        person.reads("It was cancelled before there was a verdict.")
        person.click(".confirm summary")
        person.follow(".confirm button")
        assert person.path == "/validations"
        assert person.texts("#results tbody th") == ["Samples", "Asks"]
        person.follow("form[action='/sign-out'] button")
        assert person.path == "/sign-in"
        person.go(made[0])
        assert person.path.startswith("/sign-in")
        assert service.end() == 0
    shutil.rmtree(open_folder / "bundles")
