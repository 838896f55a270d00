"""The program that attacks: reads from a descriptor what is to be tried, and prints as JSON what became of each.

Standard library only. Each attack runs in a process of its own, so that one does not change what the next one finds.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
from typing import Any

from tests.hostile.attacking.kernel import NotHereError
from tests.hostile.attacking.target import Target

ORDERS = 20
"""Descriptor from which it is told what to do."""

PATIENCE_S = 10

CAN, CANNOT, ABSENT = "can", "cannot", "absent"


def attempt(name: str, target: Target) -> str:
    """Try one attack; return `can`, `cannot`, `absent` where the machine lacks it, or the error or signal it met."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        signal.alarm(PATIENCE_S)
        text = _outcome(name, target)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    # to the end of the process, not of the pipe, which something that it left behind may hold open
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.set_blocking(reading, False)
    try:
        said = os.read(reading, 65536)
    except BlockingIOError:
        said = b""
    os.close(reading)
    return said.decode() if status == 0 else signal.Signals(-status).name


def _outcome(name: str, target: Target) -> str:
    try:
        done = importlib.import_module(f"tests.hostile.attacks.{name}").attack(target)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, f"error {error.errno}")
    except NotHereError:
        return ABSENT
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return CAN if done else CANNOT


def main() -> None:
    """Try everything that is asked for."""
    with os.fdopen(ORDERS, "rb") as source:
        orders: dict[str, Any] = json.loads(source.read())
    target = Target(**orders["target"])
    print(json.dumps({name: attempt(name, target) for name in orders["attacks"]}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
