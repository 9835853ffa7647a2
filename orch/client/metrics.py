"""The requests of a program's clients, by answer, under the reference's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.client.transport import Transport


class RestClientMetrics(Collector):
    """`rest_client_requests_total`, of all these together; register it once."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = transports

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "rest_client_requests",
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
            labels=["code", "method", "host"],
        )
        counts: Counter[tuple[str, str, str]] = Counter()
        for transport in self._transports:
            host = urlsplit(transport.config.server).netloc
            for (code, method), count in transport.requests.items():
                counts[code, method, host] += count
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family
