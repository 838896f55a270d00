"""What tests of isolated environments share: bundles of the environments here, and requests for them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmax.auth import ModelAuth, StaticBearerAuth
from benchmax.bundle import Bundle, dump_bundle
from benchmax.envs import Dataset, Environment, Example, RolloutOutcome, RolloutRequest
from runner import isolate

BASE_URL = "http://127.0.0.1:9/v1"
"""The discard port: an endpoint that nothing here ever calls."""


unconfined = functools.partial(isolate, sandbox="off")
"""For tests that and whose environments talk by files: in a sandbox each worker has its own."""


def bundled(module: ModuleType, name: str, **arguments: object) -> Bundle:
    """Bundle a class of one of the environment modules, its module by value."""
    return dump_bundle(getattr(module, name), constructor_args=arguments, local_modules=[module])


def requests_for(
    example: Example[Any],
    count: int = 1,
    *,
    auth: ModelAuth | None = None,
    base_url: str = BASE_URL,
    model: str = "m",
    prefix: str = "r",
) -> list[RolloutRequest[Any]]:
    """Make the requests of one group; the ids end in `-<number>`."""
    source = auth or StaticBearerAuth("unused-token")
    return [RolloutRequest(f"{prefix}-{k}", example, model, base_url, source, "eval") for k in range(count)]


async def run_one(
    env: Environment[Any, Any], dataset: Dataset[Any], act: str, **options: Any
) -> Mapping[str, RolloutOutcome]:
    """Run a group of the example that is named by an act."""
    example = next(example for example in dataset if example.id == act)
    return await env.run_group(requests_for(example, **{"prefix": act, **options}))


async def until(reached: Callable[[], bool], *, what: str, patience_s: float = 20.0) -> None:
    """Wait until something observable is so."""
    deadline = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < deadline, f"waited {patience_s} s for {what}"
        await asyncio.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X")


def texts(outcomes: Mapping[str, RolloutOutcome]) -> Sequence[str | None]:
    """The error texts of a group, in order."""
    return [outcome.error for outcome in outcomes.values()]
