"""One request and its answer, as the server counts, bounds and records them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import HTTPConnection

KEY: Final = "benchmax.exchange"
"""Where a scope has it."""


@dataclass(slots=True)
class Exchange:
    """A request under way.

    Args:
        id: The request's id.
        method: Its method.
        path: Its path, without the query.
        address: Where it comes from.
        max_body: Bytes that its body may have.
        body_s: Seconds that the whole body may take; `None` where only its pauses are bounded.
        free: Called once when it no longer counts among the short requests.
        key_id, tenant_id: Whose it is, once that is known.
        status: The answer's; 0 before.
        began: When, on the monotonic clock.
        code: The error's code; empty for none.
        aborted: Whether the client went before the answer's end.
    """

    id: str
    method: str
    path: str
    address: str
    max_body: int
    body_s: float | None
    free: Callable[[], None]
    key_id: str | None = None
    tenant_id: str | None = None
    status: int = 0
    code: str = ""
    aborted: bool = False
    began: float = field(default_factory=time.monotonic)
    deadline: asyncio.Timeout | None = None

    def take_long(self) -> None:
        """Be a request that takes its time, a transfer or a stream, and counts with its own kind."""
        if self.deadline is not None:
            self.deadline.reschedule(None)
            self.deadline = None
        self.free()


def exchange_of(connection: HTTPConnection) -> Exchange:
    """Return the exchange that a request is part of."""
    found: Any = connection.scope[KEY]
    assert isinstance(found, Exchange)
    return found
