"""An environment that prints and logs without end, in every way that output can come from a worker."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

ACTS = ["print", "log", "log many", "thread prints", "thread logs", "program", "descriptor", "nothing"]
RECORDS = 100_000
BURST = b"y" * 200 + b"\n"


class Flooding(Environment[str, RolloutAttempt]):
    def __init__(self) -> None:
        atexit.register(os.write, 2, b"never reached: a worker leaves without its exit hooks\n")

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        return Dataset([Example(act, act) for act in ACTS])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        await getattr(self, request.example.payload.replace(" ", "_"))()
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})

    async def nothing(self) -> None:
        await asyncio.sleep(0)

    async def print(self) -> None:
        while True:
            print("x")

    async def log(self) -> None:
        while True:
            logging.getLogger("flood").error("x")

    async def log_many(self) -> None:
        for number in range(RECORDS):
            logging.getLogger("flood").warning("record %d", number)
            if number % 1000 == 0:
                await asyncio.sleep(0)

    async def thread_prints(self) -> None:
        def flood() -> None:
            while True:
                sys.stdout.write("printed by a thread\n")

        threading.Thread(target=flood, daemon=True).start()

    async def thread_logs(self) -> None:
        def flood() -> None:
            for number in range(RECORDS):
                logging.getLogger("thread").error("record %d", number)
            done.set()

        done = threading.Event()
        threading.Thread(target=flood, daemon=True).start()
        while not done.is_set():
            await asyncio.sleep(0.01)

    async def program(self) -> None:
        flood = await asyncio.create_subprocess_exec("/bin/sh", "-c", "while :; do echo from a program; done")
        await asyncio.sleep(0.3)
        flood.kill()
        await flood.wait()

    async def descriptor(self) -> None:
        subprocess.run(["/bin/sh", "-c", "head -c 30000000 /dev/zero >&2"], check=True)
        for _ in range(100_000):
            os.write(1, BURST)

    async def aclose(self) -> None:
        for number in range(3000):
            print(f"closing {number:04d} " + "z" * 100, file=sys.stderr)
