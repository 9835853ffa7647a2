"""The events a program could not tell, on its metrics page."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.client.events import EventRecorder


class EventMetrics(Collector):
    """`orch_events_dropped_total`; register it once."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "orch_events_dropped",
            "[ALPHA] Events that the API server was never told, or refused.",
            value=self._events.dropped,
        )
