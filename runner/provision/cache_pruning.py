"""Makes a cache smaller: what is broken goes, then what was not used for long, then what fits no more.

Nothing that is in use goes: no venv something runs in, none that is being built, and no installer's folder while an
installation is going on anywhere.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from runner.provision.cache import Cache, discard
from runner.provision.cache_entries import Entry, entries, is_held
from runner.provision.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was done.

    Args:
        removed: Entries that are gone.
        kept: Entries that should go, and are in use.
        left_bytes: What the rest takes on the disk.
    """

    removed: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    left_bytes: int

    @property
    def freed_bytes(self) -> int:
        """What the removed entries took on the disk."""
        return sum(entry.size_bytes for entry in self.removed)


def prune(
    cache: Cache, *, max_bytes: int | None = None, older_than_s: float | None = None, now: float | None = None
) -> Pruned:
    """Remove what nobody needs.

    Args:
        cache: The cache.
        max_bytes: Size that what is left shall not exceed: what was used least recently goes first.
        older_than_s: Seconds without use after which an entry goes.
        now: Seconds since the epoch from which age is counted; by default the present.

    Raises:
        CacheError: the cache cannot be read or written.
    """
    now = time.time() if now is None else now
    found = entries(cache)
    if found:
        # the folder of locks may be what somebody removed by hand
        cache.prepare()
    condemned = [entry for entry in found if not entry.whole]
    if older_than_s is not None:
        condemned += [entry for entry in found if entry.whole and now - entry.last_used > older_than_s]
    removed, kept = _remove(cache, condemned)
    total = sum(entry.size_bytes for entry in found) - sum(entry.size_bytes for entry in removed)
    if max_bytes is not None:
        for entry in reversed(found):
            if total <= max_bytes:
                break
            if entry in removed or entry in kept:
                continue
            gone, held = _remove(cache, [entry])
            total -= sum(one.size_bytes for one in gone)
            removed, kept = [*removed, *gone], [*kept, *held]
    return Pruned(removed=tuple(removed), kept=tuple(kept), left_bytes=total)


def _remove(cache: Cache, condemned: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    removed: list[Entry] = []
    kept: list[Entry] = []
    for entry in condemned:
        gone = _remove_venv(cache, entry) if entry.kind == "venv" else _remove_downloads(cache, entry)
        (removed if gone else kept).append(entry)
    return removed, kept


def _remove_venv(cache: Cache, entry: Entry) -> bool:
    with cache.try_lock(entry.name) as held, cache.boundary():
        if not held or any(is_held(lease) for lease in entry.path.glob("*.lease")):
            return False
        return cache.clear(entry.name)


def _remove_downloads(cache: Cache, entry: Entry) -> bool:
    with cache.boundary():
        alone = Lease.exclusive(cache.installers_file, create=True)
        if alone is None:
            return False
        with alone:
            # out of the way at once, so that a cut-off removal leaves no half of it
            doomed = entry.path.with_name(f".removed-{secrets.token_hex(4)}")
            with contextlib.suppress(FileNotFoundError):
                entry.path.rename(doomed)
            discard(doomed)
            return not doomed.exists()
