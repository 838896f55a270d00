"""Asks for the keyring that all processes of the user share."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

GET_KEYRING_ID, USER_KEYRING = 0, -4


def attack(target: Target) -> bool:
    return call("keyctl", GET_KEYRING_ID, USER_KEYRING, 1) > 0
