"""Counters for Prometheus. No label names a tenant, a key or an id: the numbers are the operator's, of the whole."""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily

from runner.service.http.exchange import Exchange

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})


class Metrics:
    """What is counted of one server process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.in_flight = Gauge("benchmax_http_in_flight", "Requests under way.", registry=registry)
        self.streams = Gauge("benchmax_event_streams", "Event streams open.", registry=registry)
        self.uploads = Gauge("benchmax_uploads_in_flight", "Uploads under way.", registry=registry)
        self.uploaded = Counter("benchmax_uploaded_bytes", "Bytes of finished uploads.", registry=registry)
        self.denied = Counter("benchmax_denied", "Denied accesses.", ["code"], registry=registry)
        self.events = Counter("benchmax_events_sent", "Events given to streams.", registry=registry)
        self.looks = Counter("benchmax_feed_looks", "Looks at the database for events.", ["outcome"], registry=registry)
        self._requests = Counter(
            "benchmax_http_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram("benchmax_http_request_seconds", "Time to answer.", ["route"], registry=registry)

    def answered(self, exchange: Exchange, route: str) -> None:
        """Count a request that is over."""
        method = exchange.method if exchange.method in _METHODS else "other"
        self._requests.labels(method, route, str(exchange.status)).inc()
        self._seconds.labels(route).observe(time.monotonic() - exchange.began)

    def text(self, jobs: dict[tuple[str, str], int]) -> bytes:
        """Return everything as Prometheus reads it.

        Args:
            jobs: How many there are, by kind and state.
        """
        counted = GaugeMetricFamily("benchmax_jobs", "Jobs kept.", labels=["kind", "state"])
        for labels, count in sorted(jobs.items()):
            counted.add_metric(labels, count)
        return generate_latest(self._registry) + generate_latest(_Once(counted))


class _Once:
    """A registry of one family that is counted elsewhere."""

    def __init__(self, family: GaugeMetricFamily) -> None:
        self._family = family

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the family."""
        return [self._family]
