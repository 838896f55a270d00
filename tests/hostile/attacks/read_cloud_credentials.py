"""Reads what the tools of cloud providers keep in the caller's home."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return all(
        holds_secret((target.home / name).read_text())
        for name in (".aws/credentials", ".config/gcloud/application_default_credentials.json")
    )
