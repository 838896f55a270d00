"""Put a module where another bundle finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    (folder,) = Path(places["venv"]).glob("lib/*/site-packages")
    folder.chmod(0o755)
    (folder / "intruder.py").write_text("")
