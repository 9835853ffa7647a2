"""The requests of a program's clients, by answer and by time, under the reference's names."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from urllib.parse import urlsplit

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.client.transport import BUCKETS_S, Transport


class RestClientMetrics(Collector):
    """`rest_client_requests_total` and `rest_client_request_duration_seconds`, of all these
    together; register it once.
    """

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
            for (code, method), count in transport.requests.items():
                counts[code, method, _host(transport)] += count
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family
        yield self._durations()

    def _durations(self) -> Metric:
        family = HistogramMetricFamily(
            "rest_client_request_duration_seconds",
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
            labels=["verb", "host"],
        )
        seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        counts: Counter[tuple[str, str, float]] = Counter()
        for transport in self._transports:
            host = _host(transport)
            for verb, took in transport.seconds.items():
                seconds[verb, host] += took
            for (verb, bound), count in transport.durations.items():
                counts[verb, host, bound] += count
        for (verb, host), took in sorted(seconds.items()):
            upto = accumulate(counts[verb, host, bound] for bound in (*BUCKETS_S, math.inf))
            buckets = list(zip((*map(str, BUCKETS_S), "+Inf"), upto, strict=True))
            family.add_metric([verb, host], buckets, took)
        return family


def _host(transport: Transport) -> str:
    return urlsplit(transport.config.server).netloc
