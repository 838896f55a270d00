"""Running requests that belong together. Private."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["all_of"]

ResultT = TypeVar("ResultT")


async def all_of(coroutines: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """Run coroutines concurrently and return their results in order.

    The first failure cancels the others and is raised when they have ended, so that none runs on unattended.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures = [error for task in tasks if task.done() and (error := task.exception()) is not None]
        if failures:
            raise failures[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
