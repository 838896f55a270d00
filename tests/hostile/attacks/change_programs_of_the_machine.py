"""Plants a program among those of the machine."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def _place(target: Target) -> Path:
    return Path("/usr/local/bin", target.name)


def attack(target: Target) -> bool:
    _place(target).write_text("#!/bin/sh\n")
    return True


def seen(target: Target) -> bool:
    found = _place(target).exists()
    if found:
        _place(target).unlink()
    return found
