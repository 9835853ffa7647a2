"""Builds families of the agent's own metrics pages from values that their owners hold.

Knows prometheus_client and nothing of the agent. The catalogue gives each family's tier, which its
HELP states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from orch.wire.metric_catalogue import tier_of

Values = float | Mapping[Any, float]  # by label values: the text of a single label, else a tuple


class Computed(Collector):
    """A collector of the families that `compute` yields whenever the page is rendered."""

    def __init__(self, compute: Callable[[], Iterator[Metric]]) -> None:
        self._compute = compute

    def collect(self) -> Iterator[Metric]:
        return self._compute()


def gauge(name: str, text: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(name, f"[{tier_of(name)}] {text}", labels=labels)
    return _filled(family, values)


def counter(name: str, text: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    """`name` is without its `_total`."""
    tier = tier_of(f"{name}_total")
    return _filled(CounterMetricFamily(name, f"[{tier}] {text}", labels=labels), values)


def bare_counter(name: str, text: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    """A counter that the reference names without `_total`; untyped, as the library's all end so."""
    family = UnknownMetricFamily(name, f"[{tier_of(name)}] {text}", labels=labels)
    return _filled(family, values)


_Family = CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily


def _filled(family: _Family, values: Values) -> Metric:
    """The family with its series, sorted by labels."""
    if not isinstance(values, Mapping):
        values = {(): values}
    for key, value in sorted(values.items()):
        family.add_metric((key,) if isinstance(key, str) else key, value)
    return family
