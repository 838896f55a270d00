"""The environment server of verifiers, with a task and a harness that do nothing. It knows rollouts, no groups."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.serve import EnvClient, EnvServer

from scripts.benchmarks.drivers.load import BASE_URL, RunGroup, drive

__all__ = ["NoOpHarness", "NoOpTaskset"]
"""As verifiers finds them: by the name of a module that is in no package."""

MODULE = Path(__file__).stem
TASK = {"idx": 0, "prompt": "q"}


class NoOpTaskset(vf.Taskset):  # type: ignore[misc]  # verifiers is in a venv of its own
    """One task."""

    def load(self) -> Iterable[Any]:
        """Give it."""
        yield vf.Task(vf.TaskData(**TASK))


class NoOpHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]  # as above
    """No options."""


class NoOpHarness(vf.Harness[NoOpHarnessConfig]):  # type: ignore[misc]  # as above
    """Every rollout is finished at once."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, *_: Any, **__: Any) -> Any:
        """Finish."""
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def serve(address: Any) -> None:
    """Be the server."""
    sys.path.append(str(Path(__file__).parent))
    agent = {"harness": {"id": MODULE}, "runtime": {"type": "subprocess"}}
    config = vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": MODULE}, "agent": agent})
    EnvServer.run_server(address_queue=address, config=config, address="tcp://127.0.0.1:0")


@asynccontextmanager
async def server() -> AsyncIterator[RunGroup]:
    """The server, and a client of it."""
    context = multiprocessing.get_context("spawn")
    address = context.Queue()
    process = context.Process(target=serve, args=(address,), daemon=True)
    process.start()
    client = EnvClient(await asyncio.to_thread(address.get))
    await client.wait_for_server_startup(interval=0.05)
    model = vf.EvalClientConfig(base_url=BASE_URL)

    async def run_group(ids: list[str]) -> object:
        return await asyncio.gather(*(client.run(model, "m", vf.SamplingConfig(), TASK) for _ in ids))

    try:
        yield run_group
    finally:
        await client.close()
        process.terminate()
        process.join()


if __name__ == "__main__":
    drive(server)
