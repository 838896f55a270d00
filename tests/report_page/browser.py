"""A real browser, told what to do over the pipe that Chromium has for it; it runs unprivileged, in its sandbox."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 30
ANSWER_S = 150
"""For the browser itself, which may be waiting for a page."""

NOBODY = 65534

FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-extensions",
    "--disable-gpu",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class BrowserError(Exception):
    """The browser refused, or the script in it raised."""


class Tab:
    """One page.

    Args:
        browser: The browser.
        target: What the browser calls it.
        session: What its messages carry.
    """

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def close(self) -> None:
        """Close it."""
        self._browser.tell("Target.closeTarget", {"targetId": self._target})

    def tell(self, method: str, **parameters: object) -> dict[str, Any]:
        """Have something done, and return the answer."""
        return self._browser.tell(method, parameters, self._session)

    def reset(self) -> None:
        """Take back what was asked of it: its size, its preferences, doing without scripts."""
        self.size(1400)
        self.prefer()
        self.tell("Emulation.setScriptExecutionDisabled", value=False)

    def open(self, page: Path | str, *, ready: bool = True) -> float:
        """Load a page, in a file or at an address, and wait until it is there; return the seconds that took."""
        address = page if isinstance(page, str) else page.as_uri()
        return self.led(lambda: self.tell("Page.navigate", url=address), ready=ready)

    def led(self, act: Callable[[], object], *, ready: bool = True) -> float:
        """Do what leads to another page and wait until that is there; return the seconds that took."""
        began = time.monotonic()
        self._browser.told.clear()
        act()
        while not self._told("Page.loadEventFired"):
            self._browser.listen()
        if ready:
            self.wait("'ready' in document.documentElement.dataset")
        return time.monotonic() - began

    def evaluate(self, script: str) -> Any:
        """Return what an expression comes to, a promise's value if it is one."""
        answer = self.tell("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait(self, condition: str, *, patience_s: float = PATIENCE_S) -> None:
        """Wait until an expression is true, which the page itself looks at again and again.

        Raises:
            BrowserError: it did not become true.
        """
        self.evaluate(
            f"""new Promise((done, failed) => {{
                const tooLate = performance.now() + {patience_s * 1000};
                const look = () => {{
                    if ({condition}) done();
                    else if (performance.now() > tooLate) failed(new Error('still not so'));
                    else setTimeout(look, 5);
                }};
                look();
            }})"""
        )

    def size(self, width: int, height: int = 900) -> None:
        """Make the window so large."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, *, dark: bool = False, paper: bool = False) -> None:
        """Have the system prefer light or dark, or look at the page as it is printed."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "End": (35, "")}
        code, text = codes.get(key, (ord(key.upper()[0]), key))
        shared: dict[str, object] = {"key": key, "windowsVirtualKeyCode": code}
        self.tell("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **shared)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is to be seen as a PNG."""
        answer = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self.tell("Page.printToPDF", printBackground=True)["data"])

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return what the page has told of one kind since it was opened."""
        self.evaluate("0")
        return self._told(method)

    def _told(self, method: str) -> list[dict[str, Any]]:
        told = self._browser.told
        return [one["params"] for one in told if one.get("sessionId") == self._session and one["method"] == method]

    def requests(self) -> list[str]:
        """Return every address that the page has asked for."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]


class Browser:
    """A running Chromium.

    Args:
        process: It.
        commands: Where commands are written.
        answers: Where answers come from.
    """

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process = process
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._pending = b""
        self.told: list[dict[str, Any]] = []

    def tab(self) -> Tab:
        """Open an empty tab that tells what it logs, asks for and does."""
        target = self.tell("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.tell("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            tab.tell(f"{domain}.enable")
        tab.reset()
        return tab

    def tell(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (answer := self._read()).get("id") != self._number:
            self.told.append(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self) -> None:
        """Wait for the next thing that is told."""
        self.told.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], ANSWER_S)
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser is gone" if ready else "the browser does not answer")
            self._pending += data
        message, _, self._pending = self._pending.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


def chromium() -> str | None:
    """Return where Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextlib.contextmanager
def running(home: Path) -> Iterator[Browser]:
    """Run Chromium with its profile in a folder that is its alone."""
    command = chromium()
    assert command is not None
    root = os.getuid() == 0
    if root:
        os.chown(home, NOBODY, NOBODY)
    commands, answers = _pipe(), _pipe()
    # bash can move descriptors of any number to those that Chromium reads and writes
    line = f'exec "$@" 3<&{commands[0]} 4>&{answers[1]}'
    process = subprocess.Popen(
        ["bash", "-c", line, "bash", command, *FLAGS, f"--user-data-dir={home}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(commands[0], answers[1]),
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home), "LANG": "C.UTF-8"},
        user=NOBODY if root else None,
        group=NOBODY if root else None,
        extra_groups=[] if root else None,
        start_new_session=True,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser(process, commands[1], answers[0])
    finally:
        # the end of its pipe is what tells it to end
        os.close(commands[1])
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            os.close(answers[0])


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not where they are to be moved to."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
