"""Put a file into the cache that later installs take packages from."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    (Path(places["cache"]) / "intruder").write_text("")
