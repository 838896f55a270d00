"""Run every task of the example once, in this process and without a runner; print how each ended as JSON.

python in_process.py <folder of the example> <agent> ...
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
from pathlib import Path

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest


async def main(example: Path, agents: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("shell", example / "shell.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copytree(example / "tasks", "tasks")
    found: dict[str, list[object]] = {}
    for agent in agents:
        env = module.Shell(agent=agent)
        for number, task in enumerate(await env.create_dataset("eval", Path.cwd())):
            auth = StaticBearerAuth("no-model-is-asked")
            request = RolloutRequest(f"{agent}-{number}", task, "none", "http://127.0.0.1:9/v1", auth, "eval")
            (outcome,) = (await env.run_group([request])).values()
            found.setdefault(agent, []).append([outcome.termination_reason, outcome.error, dict(outcome.rewards)])
    print(json.dumps(found))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
