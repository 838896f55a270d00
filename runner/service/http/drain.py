"""Whether the server is about to end, what is under way until then, and who wants to know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Drain:
    """Begins once, and stays begun. Belongs to one event loop."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._under_way = 0

    @property
    def begun(self) -> bool:
        """Whether the server takes in nothing new any more."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Let everybody know."""
        self._begun.set()

    async def wait(self) -> None:
        """Return when it has begun."""
        await self._begun.wait()

    @contextlib.contextmanager
    def waited_for(self) -> Iterator[None]:
        """Be something that has to end first."""
        self._under_way += 1
        self._settled.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._settled.set()

    async def settled(self) -> None:
        """Return when nothing is under way."""
        await self._settled.wait()
