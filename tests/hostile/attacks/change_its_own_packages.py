"""Plants code in a package of its own venv, which later runs would execute."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with (target.venv / "lib/site-packages/package.py").open("a") as file:
        file.write("PLANTED = True\n")
    return True


def seen(target: Target) -> bool:
    return "PLANTED" in (target.venv / "lib/site-packages/package.py").read_text()
