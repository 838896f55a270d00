"""A credential that a server refuses: its source is told once, however many calls were under way with it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

REMEMBERED: Final = 256
"""Refused headers of which it is known what became of them; a call that began before comes late with them."""


class Rejections:
    """What sources said to refused headers. One serves all calls that get their headers from the same source."""

    def __init__(self) -> None:
        self._tellings: dict[bytes, asyncio.Task[bool]] = {}
        self._waiting: dict[bytes, int] = {}
        self._settled: OrderedDict[bytes, tuple[int, bool]] = OrderedDict()
        self.count = 0
        """How many were settled so far."""

    async def tell(self, headers: Mapping[str, str], ask: Callable[[], Awaitable[bool]], *, since: int) -> bool:
        """Tell the source, unless another call has done so with the same headers meanwhile, or is at it.

        Args:
            headers: The ones that were refused.
            ask: Tells the source, and returns whether another try makes sense.
            since: The `count` when the headers were got. What was settled later holds for them as well.

        Returns:
            Whether another try makes sense.
        """
        key = _fingerprint(headers)
        if (settled := self._settled.get(key)) is not None and settled[0] > since:
            return settled[1]
        task = self._tellings.get(key)
        if task is None:
            task = self._tellings[key] = asyncio.ensure_future(_answer(ask))
            task.add_done_callback(lambda done: self._settle(key, done))
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                # nobody waits for it any more, and who comes next asks anew
                del self._waiting[key]
                self._forget(key, task)
                task.cancel()

    def _forget(self, key: bytes, task: asyncio.Task[bool]) -> None:
        if self._tellings.get(key) is task:
            del self._tellings[key]

    def _settle(self, key: bytes, task: asyncio.Task[bool]) -> None:
        self._forget(key, task)
        if not task.cancelled() and task.exception() is None:
            self.count += 1
            self._settled.pop(key, None)
            self._settled[key] = (self.count, task.result())
            if len(self._settled) > REMEMBERED:
                self._settled.popitem(last=False)


async def _answer(ask: Callable[[], Awaitable[bool]]) -> bool:
    return await ask()


def _fingerprint(headers: Mapping[str, str]) -> bytes:
    """What equal headers have in common; the values themselves are kept no longer than their calls."""
    digest = hashlib.sha256()
    for name, value in sorted(headers.items()):
        digest.update(f"{name.lower()}\0{value}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()
