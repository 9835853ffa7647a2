"""Builds families of the agent's own metrics pages from values that their owners hold.

Knows prometheus_client and nothing of the agent. `tier` is the promise that a family's HELP states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

ALPHA, BETA = "[ALPHA] ", "[BETA] "

Values = Iterable[tuple[Sequence[str], float]]  # the labels' values → the sample's


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, ALPHA + text, value=value)


def counter(name: str, text: str, value: float, *, tier: str = ALPHA) -> Metric:
    return CounterMetricFamily(name, tier + text, value=value)


def gauges(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(name, ALPHA + text, labels=labels), values)


def counters(
    name: str, text: str, labels: Sequence[str], values: Values, *, tier: str = ALPHA
) -> Metric:
    return _filled(CounterMetricFamily(name, tier + text, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def by_label(counts: Mapping[str, int]) -> Values:
    """The counts of a family with a single label, sorted."""
    return [((label,), count) for label, count in sorted(counts.items())]
