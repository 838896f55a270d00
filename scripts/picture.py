"""Makes the picture of the service's page: a real service validates a bundle with defects, and Chromium looks at it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from runner.artifact import write_artifact
from tests.integration.command_line import PROGRAM
from tests.report_page.browser import running
from tests.service.cli.running import Service, serving
from tests.service.executor.house import bundle_of
from tests.service.web.person import Person

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "service-page.png"
SIZE = (1200, 900)
MAX_BYTES = 250_000


def main() -> None:
    """Make it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir()
        for name in ("Asks", "Samples"):
            write_artifact(bundle_of(name), folder / name)
        with serving(folder / "data", user_cache_path("benchmax"), "--executors", "1") as service:
            key = service.key(name="picture")
            validation_id = [_validated(service, key, folder / name) for name in ("Asks", "Samples")][-1]
            with running(home) as browser:
                person = Person(browser.tab(), service.url)
                person.tab.size(*SIZE)
                person.go("/sign-in")
                person.fill("input[name=key]", key)
                person.tab.led(lambda: person.tab.press("Enter"))
                person.go(f"/validations/{validation_id}")
                person.tab.evaluate("document.querySelector('iframe').loading = 'eager'")
                person.tab.wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/report'))")
                person.tab.screenshot(PICTURE)
    size = PICTURE.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{PICTURE} has {size} bytes, and may have {MAX_BYTES}.")
    print(f"{PICTURE}: {size} bytes")


def _validated(service: Service, key: str, bundle: Path) -> str:
    """Have the bundle validated, and return the validation's id."""
    made = _benchmax("submit", str(bundle), "--detach", "--server", service.url, key=key).strip().rpartition(" ")[2]
    _benchmax("submit", "--attach", made, "--server", service.url, key=key)
    return made


def _benchmax(*arguments: str, key: str) -> str:
    environ = {**os.environ, "BENCHMAX_KEY": key}
    done = subprocess.run([str(PROGRAM), *arguments], env=environ, stdout=subprocess.PIPE, text=True, check=False)
    # it is to be invalid
    if done.returncode not in (0, 1):
        raise SystemExit(f"benchmax {arguments[0]} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
