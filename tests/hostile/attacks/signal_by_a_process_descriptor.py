"""Sends a signal to the caller by a descriptor of its process."""

from __future__ import annotations

import os
import signal

from tests.hostile.attacking.target import BY_PIDFD, Target, arrived


def attack(target: Target) -> bool:
    signal.pidfd_send_signal(os.pidfd_open(target.caller), BY_PIDFD)
    return True


def seen(target: Target) -> bool:
    return arrived(BY_PIDFD)
