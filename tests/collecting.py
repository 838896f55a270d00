"""What a piece of work leaves to the cyclic collector."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

TIMES = 500


async def cyclic_garbage(run: Callable[[], Awaitable[object]]) -> int:
    """Return how many objects one `run` leaves that only the cyclic collector frees, rounded down.

    An average over many runs, since the rest of the process leaves some hundred of its own in the meantime.
    """
    await run()
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            await run()
        return gc.collect() // TIMES
    finally:
        gc.enable()
