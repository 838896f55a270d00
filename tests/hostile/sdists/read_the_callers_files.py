"""Read a file of the caller's home."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    assert places["secret"] in Path(places["notes"]).read_text()
