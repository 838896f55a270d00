"""What an untrusted program tries, one module for each attack; `tests/hostile/attack_table.py` says what comes of it.

A module has a function `attack`, run inside of the sandbox in a process of its own, which returns whether it managed or
raises the kernel's refusal; where the traces of it can be looked for from outside, a function `seen`, run afterwards in
the process of the caller; and `ALONE = True` where nothing else can run beside it.
"""

from __future__ import annotations

from pathlib import Path


def names() -> list[str]:
    """Return the names of all attacks, sorted."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
