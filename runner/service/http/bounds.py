"""Fixed numbers of the HTTP server, each with its unit and its reason; what can be set is in the settings' limits.

Times are seconds.
"""

from __future__ import annotations

from typing import Final

BODY_S: Final = 60.0
"""For the whole body of a request with JSON, which has a megabyte."""

IDLE_S: Final = 75
"""How long a connection that nothing is asked on is kept: longer than proxies keep theirs."""

CONNECTIONS: Final = 10_000
"""Connections at once, where the process has descriptors for as many."""

DESCRIPTORS: Final = 2
"""For each connection: one for itself and as many for everything else."""

LINGER_S: Final = 2.0
"""How long a client that was refused in the middle of its request may go on sending: cut off, it would not see why."""

POLL_S: Final = 0.04
"""Between two looks at the database while somebody watches: an event is seen within 100 ms with two to spare."""

POLL_RETRY_S: Final = 1.0
"""The same after a look that failed."""

EVENT_ROWS: Final = 500
"""Events that one look at the database fetches at most; a watcher that is further behind looks again."""

FEED_EVENTS: Final = 512
"""Newest events of one watched job that are held; who is behind them reads the database."""

PAGE_ITEMS: Final = 200
"""Items of one page of a list at most."""

RETRY_MS: Final = 1_000
"""What a stream that ends for the server's sake tells its client to wait before it comes back."""

READY_S: Final = 5.0
"""For each look of a readiness probe; one that takes longer has failed."""

CHUNK_BYTES: Final = 256 * 1024
"""Read and written at once of a file: more of it saves no time, and hundreds of transfers hold one each."""

BUCKETS: Final = 100_000
"""Addresses and keys whose requests are counted; the ones that came longest ago are forgotten."""

ANSWER_S: Final = 90.0
"""For the answer to a request that is no transfer and no stream: longer than a database that fails over takes."""

RECHECK_S: Final = 30.0
"""How long an event stream may go on after its key was revoked."""
