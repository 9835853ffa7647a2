"""A program's own metrics: prometheus-client behind stability-marked HELP texts.

Hot pages (container metrics, health SLIs) are written by their own renderers, not from here.
"""

from __future__ import annotations

from collections.abc import Sequence

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

# `_created` series would double the page for nothing.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

Labels = Sequence[str]


class Registry:
    """One page of metrics; each program makes its own, nothing is global."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)

    def counter(
        self, name: str, text: str, labels: Labels = (), stability: str = "ALPHA"
    ) -> Counter:
        """A counter; `name` ends in `_total`."""
        return Counter(name, _help(text, stability), labels, registry=self._registry)

    def gauge(self, name: str, text: str, labels: Labels = (), stability: str = "ALPHA") -> Gauge:
        return Gauge(name, _help(text, stability), labels, registry=self._registry)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels = (),
        stability: str = "ALPHA",
        *,
        buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
    ) -> Histogram:
        """A histogram; `buckets` are upper bounds without +Inf."""
        return Histogram(
            name, _help(text, stability), labels, buckets=tuple(buckets), registry=self._registry
        )

    def register(self, collector: Collector) -> None:
        """Add what computes its metrics when the page is asked for."""
        self._registry.register(collector)

    def add_process_metrics(self) -> None:
        """The `process_*` family of this process, and the interpreter's collections."""
        prometheus_client.ProcessCollector(registry=self._registry)
        prometheus_client.GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that an Accept header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _help(text: str, stability: str) -> str:
    return f"[{stability}] {text}"
