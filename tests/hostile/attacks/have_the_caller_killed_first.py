"""Makes the caller the first one to be killed when memory is short."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    Path(f"/proc/{target.caller}/oom_score_adj").write_text("999")
    return True


def seen(target: Target) -> bool:
    return Path("/proc/self/oom_score_adj").read_text().strip() == "999"
