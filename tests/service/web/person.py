"""Somebody in front of a browser: goes to pages, reads, clicks, types, or uses the keyboard alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.service.database import sessions
from runner.service.http.access import COOKIE
from tests.report_page.browser import Tab
from tests.service.http.servers import ServerProcess, Tenant


class Person:
    """See the module.

    Args:
        tab: Their tab, which knows nobody yet.
        url: Where the service is.
    """

    def __init__(self, tab: Tab, url: str) -> None:
        self.tab = tab
        self.url = url
        tab.tell("Network.clearBrowserCookies")

    @classmethod
    def of(cls, tab: Tab, tenant: Tenant) -> Person:
        """Have somebody who has signed in with a tenant's key."""
        person = cls(tab, tenant.server.url)
        person.show(session_of(tenant.server, tenant))
        return person

    def show(self, token: str) -> None:
        """Have the browser show a session's cookie."""
        self.tab.tell("Network.setCookie", name=COOKIE, value=token, url=self.url, httpOnly=True, sameSite="Strict")

    def cookies(self) -> list[dict[str, Any]]:
        """Return what the browser keeps of the service."""
        found: list[dict[str, Any]] = self.tab.tell("Network.getCookies", urls=[self.url])["cookies"]
        return found

    def go(self, path: str, *, ready: bool = True) -> Person:
        """Go to a page by its address."""
        self.tab.open(f"{self.url}{path}", ready=ready)
        return self

    @property
    def path(self) -> str:
        """Where they are."""
        return str(self.tab.evaluate("location.pathname + location.search"))

    def has(self, selector: str) -> bool:
        """Return whether there is something."""
        return bool(self.tab.evaluate(f"document.querySelector({json.dumps(selector)}) !== null"))

    def count(self, selector: str) -> int:
        """Return how many there are."""
        return int(self.tab.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def text(self, selector: str = "main") -> str:
        """Read what can be seen of something."""
        return str(self.tab.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        """Read what can be seen of each of several."""
        found = self.tab.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.innerText.trim())"
        )
        assert isinstance(found, list)
        return found

    def reads(self, text: str, selector: str = "main") -> None:
        """Wait until something is to be read."""
        self.tab.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.tab.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.tab.tell("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click something, and stay."""
        self.tab.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def follow(self, selector: str) -> None:
        """Click something that leads to another page."""
        # from a timer, so that the answer does not go down with the page
        self.tab.led(
            lambda: self.tab.evaluate(f"setTimeout(() => document.querySelector({json.dumps(selector)}).click()); 0")
        )

    def drop(self, selector: str, *paths: Path) -> None:
        """Drag files or folders from the desktop onto something."""
        box = self.tab.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.tab.tell("Input.dispatchDragEvent", type=kind, x=box[0], y=box[1], data=data)

    def choose(self, selector: str, *paths: Path) -> None:
        """Choose files, as in the browser's own dialog."""
        found = self.tab.tell("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        files = [str(path) for path in paths]
        self.tab.tell("DOM.setFileInputFiles", files=files, objectId=found["result"]["objectId"])

    def tab_to(self, condition: str) -> None:
        """Press the tab key until what has the focus meets a condition, `one` being it."""
        for _ in range(60):
            self.tab.press("Tab")
            if self.tab.evaluate(f"((one) => {condition})(document.activeElement)"):
                return
        raise AssertionError(f"the keyboard does not lead to {condition}")

    def troubles(self) -> list[str]:
        """Return what the page's scripts raised, and what the browser refused to load or run."""
        raised = [event["exceptionDetails"]["text"] for event in self.tab.events("Runtime.exceptionThrown")]
        return raised + [event["entry"]["text"] for event in self.tab.events("Log.entryAdded")]


def session_of(server: ServerProcess, tenant: Tenant) -> str:
    """Begin a session of a tenant's key; return its token."""
    return server.database.run_now(sessions.create, tenant.key_id, lifetime_s=3600.0)
