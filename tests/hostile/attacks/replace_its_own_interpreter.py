"""Puts another program in the place of its interpreter."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    python = target.venv / "python"
    python.rename(python.with_name("python-before"))
    python.write_text("#!/bin/sh\n")
    return True


def seen(target: Target) -> bool:
    return (target.venv / "python").stat().st_size < 100
