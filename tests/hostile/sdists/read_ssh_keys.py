"""Read a private key of the caller's."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    assert places["secret"] in Path(places["key"]).read_text()
