"""Label values kept within lists that operators give, so that no label can grow without bound.

A value outside its list becomes `unexpected`, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from orch.component.stability import UNEXPECTED

Allowed = Mapping[str, frozenset[str]]  # label → the values it may have


class Bounded:
    """Checks the values before the metric sees them."""

    allowed: Allowed
    on_unexpected: Callable[[], None]

    def labels(self, *values: Any, **named: Any) -> Any:
        given = {**dict(zip(self._labelnames, values, strict=False)), **named}  # type: ignore[attr-defined]
        checked = {name: bounded(self, name, str(value)) for name, value in given.items()}
        return super().labels(**checked)  # type: ignore[misc]


def bounded(metric: Bounded, label: str, value: str) -> str:
    """The value, or `unexpected` when the label has a list without it."""
    values = metric.allowed.get(label)
    if values is None or value in values:
        return value
    metric.on_unexpected()
    return UNEXPECTED


M = TypeVar("M", Counter, Gauge, Histogram)


class BoundedCounter(Bounded, Counter):
    """A counter with lists of label values."""


class BoundedGauge(Bounded, Gauge):
    """A gauge with lists of label values."""


class BoundedHistogram(Bounded, Histogram):
    """A histogram with lists of label values."""


def bounded_kind(kind: type[M]) -> type[M]:
    """The same kind of metric with lists of label values; they are set on it once it is made."""
    kinds: dict[Any, Any] = {
        Counter: BoundedCounter,
        Gauge: BoundedGauge,
        Histogram: BoundedHistogram,
    }
    return cast(type[M], kinds[kind])


def bound_family(family: Metric, allowed: Allowed, on_unexpected: Callable[[], None]) -> Metric:
    """A computed family with its values in the lists; series that become one are added up."""
    result = Metric(family.name, family.documentation, family.type, family.unit)
    result.samples = list(_added_up(_within(family.samples, allowed, on_unexpected)))
    return result


def _within(
    samples: Iterable[Sample], allowed: Allowed, on_unexpected: Callable[[], None]
) -> Iterator[Sample]:
    for sample in samples:
        labels = dict(sample.labels)
        for label, values in allowed.items():
            if labels.get(label, next(iter(values), "")) not in values:
                labels[label] = UNEXPECTED
                on_unexpected()
        yield sample._replace(labels=labels)


def _added_up(samples: Iterable[Sample]) -> Iterable[Sample]:
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        known = merged.get(key)
        merged[key] = sample._replace(value=known.value + sample.value) if known else sample
    return merged.values()
