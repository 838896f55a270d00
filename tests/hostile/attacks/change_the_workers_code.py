"""Changes the code that every worker runs before its bundle."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with (target.code / "tests/hostile/attacking/target.py").open("a") as file:
        file.write("# planted\n")
    return True


def seen(target: Target) -> bool:
    return "# planted\n" in (target.code / "tests/hostile/attacking/target.py").read_text()
