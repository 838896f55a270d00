"""Which sample of a request this is: what tells the equal requests of sibling rollouts apart.

`mock` and `local` make their answer from the request and its sample number, so that siblings differ and a repeated run
is the same. The number is the `X-Benchmax-Sample` header if there is one, else that of the bearer token `SampleAuth`
gives, else the count of equal requests so far.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmax.auth import ModelRequestContext

SAMPLE_HEADER: Final = "X-Benchmax-Sample"

SAMPLE_TOKEN: Final = "benchmax-sample"  # noqa: S105 - it is none
"""Bearer token that stands for no secret; with `-<number>` behind it, it says the number, for programs that are handed
a base URL and a key and send no headers beside."""

MAX_COUNTED_REQUESTS: Final = 100_000
"""Different requests whose repeats are counted; beyond it the least recent one is forgotten."""


class SampleAuth:
    """A `ModelAuth` for the newcomer's models: needs no secret and says which sibling is asking.

    A rollout id that ends in `-<number>` gives that number; for any other id none is sent, and the server counts.
    """

    async def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        """Return the sample header and token for the rollout of this request."""
        match = re.search(r"-(\d{1,9})$", context.rollout_id)
        if match is None:
            return {"Authorization": f"Bearer {SAMPLE_TOKEN}"}
        return {"Authorization": f"Bearer {SAMPLE_TOKEN}-{match[1]}", SAMPLE_HEADER: match[1]}


class SampleCounter:
    """Counts how often the same request has come."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def next_sample(self, key: str) -> int:
        """Return how often this key has come before, and count it."""
        count = self._seen.pop(key, 0)
        self._seen[key] = count + 1
        if len(self._seen) > MAX_COUNTED_REQUESTS:
            self._seen.popitem(last=False)
        return count


def header_sample(value: str | None, authorization: str | None = None) -> int | None:
    """Return the number in a sample header, else that in a sample token, or nothing if there is none in either."""
    token = re.fullmatch(rf"Bearer {SAMPLE_TOKEN}-(\d{{1,9}})", authorization or "")
    if value is None and token:
        value = token[1]
    return int(value) if value is not None and re.fullmatch(r"\d{1,9}", value) else None
