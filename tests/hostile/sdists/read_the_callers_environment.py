"""Read the variables of every process that can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attack(places: dict[str, Any]) -> None:
    for entry in Path("/proc").iterdir():
        try:
            if places["secret"].encode() in (entry / "environ").read_bytes():
                return
        except OSError:
            continue
    raise LookupError("no process shows it")
