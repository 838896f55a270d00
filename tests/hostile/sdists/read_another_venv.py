"""Read the packages of another bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    assert list(Path(places["venv"]).rglob("harmless.py"))
