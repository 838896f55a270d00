"""The parts of a running server, opened together and closed together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from runner.errors import DatabaseError
from runner.redaction import Redactor
from runner.service.blobs.belonging import check_belongs
from runner.service.blobs.opening import open_blobs
from runner.service.blobs.store import BlobStore
from runner.service.database import keys, settings
from runner.service.database.database import Database, upgrade
from runner.service.http.access import Touched
from runner.service.http.drain import Drain
from runner.service.http.feed import Feed
from runner.service.http.metrics import Metrics
from runner.service.http.rates import Rates
from runner.service.http.request_log import RequestLog
from runner.service.settings import Settings

URL_KEY = "url-signing-key"
"""Name of the secret that URLs are signed with."""


@dataclass(slots=True, kw_only=True)
class ServiceState:
    """What routes work with.

    Args:
        settings: How the service is set up.
        database: The database.
        blobs: The blob store.
        feed: Events of jobs, for streams.
        signing_key: What URLs are signed with; the same for all servers of the service.
        redactor: Knows the secrets that the settings hold.
        log: Where what happens is written.
        metrics: What is counted.
        rates: How often keys ask.
        denials: How often addresses are denied.
        drain: Whether the server is about to end.
        streams: Event streams open, by key.
        receiving: Uploads whose content is coming in.
    """

    settings: Settings
    database: Database
    blobs: BlobStore
    feed: Feed
    signing_key: bytes
    redactor: Redactor
    log: RequestLog
    metrics: Metrics = field(default_factory=Metrics)
    rates: Rates = field(default_factory=Rates)
    denials: Rates = field(default_factory=Rates)
    drain: Drain = field(default_factory=Drain)
    streams: Counter[str] = field(default_factory=Counter)
    receiving: set[str] = field(default_factory=set)
    touched: Touched = field(default_factory=Touched)

    @classmethod
    async def open(cls, given: Settings) -> Self:
        """Bring the database up to date, and open everything.

        Raises:
            UsageError: a URL cannot be meant.
            DatabaseError: the database cannot be used, or is that of another blob store.
            StoreUnavailableError: the blob store cannot.
        """
        upgrade(given.database_url)
        database = Database.open(given.database_url)
        watched = None
        try:
            watched = Database.open(given.database_url, threads=1)
            blobs = open_blobs(given.blobs_url, spool=given.server.data / "spool")
            try:
                await check_belongs(blobs, database)
                signing_key = await database.run(settings.secret, URL_KEY)
            except BaseException:
                await blobs.aclose()
                raise
        except BaseException:
            if watched is not None:
                watched.close()
            database.close()
            raise
        redactor, metrics = Redactor(), Metrics()
        for secret in _secrets(given):
            redactor.learn_for_good(secret)
        log = RequestLog(redactor)
        return cls(
            settings=given,
            database=database,
            blobs=blobs,
            # with a connection of its own: events do not wait for what all others do
            feed=Feed(watched, metrics, log),
            signing_key=signing_key,
            redactor=redactor,
            log=log,
            metrics=metrics,
        )

    async def touch(self, key_id: str) -> None:
        """Note that a key is used, now and then."""
        if self.touched.is_due(key_id):
            try:
                await self.database.run(keys.touch, key_id)
            except DatabaseError as error:
                # whoever asks can be answered all the same
                self.log.tell(30, "touch", key=key_id, error=str(error))

    async def aclose(self) -> None:
        """Close everything. Safe to call twice."""
        await self.feed.aclose()
        self.feed.database.close()
        await self.blobs.aclose()
        self.database.close()


def _secrets(given: Settings) -> list[str]:
    held = [given.database_url, given.model.key, *(binding.key for binding in given.bindings.values())]
    return [secret for secret in held if secret and ("@" in secret or "://" not in secret)]
