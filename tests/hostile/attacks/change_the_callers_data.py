"""Changes data of the caller."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with (target.data / "rows.jsonl").open("a") as file:
        file.write("planted\n")
    return True


def seen(target: Target) -> bool:
    return "planted" in (target.data / "rows.jsonl").read_text()
