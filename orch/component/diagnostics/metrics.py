"""A program's own metrics: prometheus-client behind stability-marked HELP texts.

The tier of a metric comes from the catalogue of promised names. A policy withholds metrics that are
disabled or hidden by deprecation, and replaces label values outside an operator's list with
`unexpected`; counters report the effect. Hot pages (container metrics, health SLIs) have their own
renderers.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypedDict, TypeVar, Unpack, cast

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from orch.component.flags.stability import UNEXPECTED, MetricPolicy
from orch.component.http import negotiation
from orch.component.process.log import request_id
from orch.wire import metric_catalogue

Allowed = Mapping[str, frozenset[str]]  # label → the values it may have


class Bounded:
    """A metric whose label values are limited to lists."""

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


@cache
def bounded_kind(kind: type[M]) -> type[M]:
    """The subclass of a metric type that limits label values."""
    return cast(type[M], type(f"Bounded{kind.__name__}", (Bounded, kind), {}))


def bound_family(family: Metric, allowed: Allowed, on_unexpected: Callable[[], None]) -> Metric:
    """A computed family with its label values limited; series that become equal are added up."""
    merged: dict[tuple[Any, ...], Sample] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        for label in labels.keys() & allowed.keys():
            if labels[label] not in allowed[label]:
                labels[label] = UNEXPECTED
                on_unexpected()
        key = (sample.name, *sorted(labels.items()))
        value = sample.value + (merged[key].value if key in merged else 0)
        merged[key] = sample._replace(labels=labels, value=value)
    result = Metric(family.name, family.documentation, family.type, family.unit)
    result.samples = list(merged.values())
    return result


# `_created` series would double the page for nothing.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

Labels = Sequence[str]
M = TypeVar("M", Counter, Gauge, Histogram)


class Settings(TypedDict, total=False):
    """`deprecated` is the release since which the metric is."""

    stability: str  # INTERNAL, ALPHA, BETA or STABLE, by default the catalogue's tier
    deprecated: str


class Registry:
    """A page of metrics; each program builds its own, nothing is global.

    A withheld metric can be written to like any other.
    """

    def __init__(self, policy: MetricPolicy | None = None) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._policy = policy or MetricPolicy()
        self._record = _Record(self._policy)
        if policy is not None:
            self._registry.register(self._record)

    def counter(
        self, name: str, text: str, labels: Labels = (), **settings: Unpack[Settings]
    ) -> Counter:
        """A counter; one whose `name` does not end in `_total` is served under that name, untyped:
        both formats add the ending to whatever calls itself a counter.
        """
        kind = Counter if name.endswith("_total") else _NamedCounter
        return self._make(kind, name, text, labels, **settings)

    def counter_of(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A counter without labels that somebody else keeps; `name` ends in `_total`."""
        self.register(_Kept(name, text, read))

    def gauge(
        self, name: str, text: str, labels: Labels = (), **settings: Unpack[Settings]
    ) -> Gauge:
        return self._make(Gauge, name, text, labels, **settings)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels = (),
        *,
        buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
        **settings: Unpack[Settings],
    ) -> Histogram:
        """A histogram; `buckets` are upper bounds without +Inf."""
        return self._make(Histogram, name, text, labels, buckets=tuple(buckets), **settings)

    def register(self, collector: Collector) -> None:
        """Add a collector, which computes its metrics when the page is rendered."""
        self._registry.register(_Governed(collector, self._policy, self._record))

    def add_process_metrics(self) -> None:
        """The `process_*` family of this process, and the interpreter's collections."""
        prometheus_client.ProcessCollector(registry=self._registry)
        prometheus_client.GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that an Accept header prefers, and its content type."""
        if negotiation.wants_openmetrics(accept):
            page = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return page, negotiation.OPENMETRICS_TYPE
        return prometheus_client.generate_latest(self._registry), negotiation.TEXT_TYPE

    def _make(
        self, kind: type[M], name: str, text: str, labels: Labels, *,
        stability: str = "", deprecated: str = "", **more: Any,
    ) -> M:  # fmt: skip
        level = stability or metric_catalogue.tier_of(name)
        fate = self._policy.fate(name, level, deprecated)
        self._record.add(fate, level, deprecated)
        allowed = self._policy.allowed.get(name)
        chosen = bounded_kind(kind) if allowed else kind
        registry = self._registry if fate == "shown" else None
        metric = chosen(name, _help(text, level, deprecated), labels, registry=registry, **more)
        if isinstance(metric, Bounded) and allowed:
            metric.allowed, metric.on_unexpected = allowed, self._record.count_unexpected
        return metric


class _NamedCounter(Counter):
    """A counter that the reference named before names had to end in `_total`."""

    _type = "unknown"

    def _child_samples(self) -> tuple[Sample, ...]:
        return tuple(sample._replace(name="") for sample in super()._child_samples())


def exemplar() -> dict[str, str] | None:
    """What leads from a bucket to a line of the log: the ID of the request under way, if any.

    Shown on OpenMetrics pages alone; costs a microsecond for each observation.
    """
    current = request_id.get()
    return {"request_id": current} if current else None


def computed(metric: Counter | Histogram) -> Metric:
    """The family of a metric without a registry, for a collector to yield.

    Its series are sorted by labels, and bucket bounds formatted as the reference does: `le="1"`
    instead of the library's `le="1.0"`.
    """
    (family,) = metric.collect()
    family.samples.sort(key=lambda sample: [v for k, v in sample.labels.items() if k != "le"])
    for sample in family.samples:
        bound = sample.labels.get("le", "+Inf")
        if bound != "+Inf":
            sample.labels["le"] = f"{float(bound):g}"
    return family


class _Record(Collector):
    """Counts a page's registered, hidden and disabled metrics, as metrics."""

    def __init__(self, policy: MetricPolicy) -> None:
        self._disabled = len(policy.disabled)
        self._registered: Tally[tuple[str, str]] = Tally()
        self._hidden = 0
        self._unexpected = 0

    def add(self, fate: str, level: str, deprecated: str) -> None:
        if fate == "shown":
            self._registered[level, deprecated] += 1
        elif fate == "hidden":
            self._hidden += 1

    def count_unexpected(self) -> None:
        self._unexpected += 1

    def collect(self) -> Iterator[Metric]:
        registered = CounterMetricFamily(
            "registered_metrics",
            "[BETA] The count of registered metrics broken by stability level and deprecation"
            " version.",
            labels=["stability_level", "deprecated_version"],
        )
        for key, count in sorted(self._registered.items()):
            registered.add_metric(key, count)
        yield registered
        yield CounterMetricFamily(
            "disabled_metrics", "[BETA] The count of disabled metrics.", value=self._disabled
        )
        yield CounterMetricFamily(
            "hidden_metrics", "[BETA] The count of hidden metrics.", value=self._hidden
        )
        yield CounterMetricFamily(
            "cardinality_enforcement_unexpected_categorizations",
            "[ALPHA] The count of label values outside their list.",
            value=self._unexpected,
        )


class _Kept(Collector):
    """A counter that is read when the page is rendered."""

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name = name
        self._text = f"[{metric_catalogue.tier_of(name)}] {text}"
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._read())


class _Governed(Collector):
    """A collector under the policy; each family is counted when it is first seen."""

    def __init__(self, collector: Collector, policy: MetricPolicy, record: _Record) -> None:
        self._collector = collector
        self._policy = policy
        self._record = record
        self._seen: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        for family in self._collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            level = _level_in(family.documentation) or metric_catalogue.tier_of(name)
            fate = self._policy.fate(name, level, "")
            if name not in self._seen:
                self._seen.add(name)
                self._record.add(fate, level, "")
            if fate == "shown":
                allowed = self._policy.allowed.get(name)
                unexpected = self._record.count_unexpected
                yield bound_family(family, allowed, unexpected) if allowed else family


def _help(text: str, level: str, deprecated: str) -> str:
    if deprecated:
        return f"[{level}] (Deprecated since {deprecated}) {text}"
    return f"[{level}] {text}"


def _level_in(text: str) -> str:
    """The level at the start of a HELP text; "" if there is none."""
    level, found, _ = text.removeprefix("[").partition("] ")
    return level if found and text.startswith("[") else ""
