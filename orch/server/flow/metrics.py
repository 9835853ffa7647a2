"""The metrics of flow control, under the reference's names, computed when the page is rendered."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orch.server.flow.levels import WAIT_BUCKETS, Levels, Schema, Waits

_SCHEMA = ("priority_level", "flow_schema")
_COUNTS: tuple[
    tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Callable[[Schema], int]], ...
] = (
    (
        GaugeMetricFamily,
        "apiserver_flowcontrol_current_executing_requests",
        "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution"
        " stage in the API Priority and Fairness subsystem",
        lambda schema: schema.executing,
    ),
    (
        GaugeMetricFamily,
        "apiserver_flowcontrol_current_executing_seats",
        "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage"
        " for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
        lambda schema: schema.executing,
    ),
    (
        GaugeMetricFamily,
        "apiserver_flowcontrol_current_inqueue_requests",
        "[BETA] Number of requests currently pending in queues of the API Priority and Fairness"
        " subsystem",
        lambda schema: schema.waiting,
    ),
    (
        CounterMetricFamily,
        "apiserver_flowcontrol_dispatched_requests",
        "[BETA] Number of requests executed by API Priority and Fairness subsystem",
        lambda schema: schema.at_once + schema.waited.count,
    ),
)


class FlowMetrics(Collector):
    """Labels are names of levels and schemas, never of callers."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels

    def collect(self) -> Iterator[Metric]:
        for kind, name, text, count in _COUNTS:
            family = kind(name, text, labels=_SCHEMA)
            for schema in self._levels.schemas():
                family.add_metric(_labels(schema), count(schema))
            yield family
        yield self._nominal()
        yield self._rejected()
        yield self._waits()

    def _nominal(self) -> Metric:
        family = GaugeMetricFamily(
            "apiserver_flowcontrol_nominal_limit_seats",
            "[BETA] Nominal number of execution seats configured for each priority level",
            labels=_SCHEMA[:1],
        )
        levels = {schema.level.name: schema.level for schema in self._levels.schemas()}
        for level in levels.values():
            if level.queue is not None and level.queue.bounds.seats < sys.maxsize:
                family.add_metric((level.name,), level.queue.bounds.seats)
        return family

    def _rejected(self) -> Metric:
        family = CounterMetricFamily(
            "apiserver_flowcontrol_rejected_requests",
            "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
            labels=(*_SCHEMA, "reason"),
        )
        for schema in self._levels.schemas():
            for reason, count in tuple(schema.rejected.items()):
                family.add_metric((*_labels(schema), reason), count)
        return family

    def _waits(self) -> Metric:
        family = HistogramMetricFamily(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "[BETA] Length of time a request spent waiting in its queue",
            labels=(*_SCHEMA, "execute"),
        )
        for schema in self._levels.schemas():
            if schema.level.queue is not None:
                buckets = _buckets(schema.waited, schema.at_once)
                family.add_metric((*_labels(schema), "true"), buckets, schema.waited.sum_s)
                vain = schema.waited_in_vain
                family.add_metric((*_labels(schema), "false"), _buckets(vain, 0), vain.sum_s)
        return family


def _labels(schema: Schema) -> tuple[str, str]:
    return schema.level.name, schema.name


def _buckets(waits: Waits, at_once: int) -> list[tuple[str, float]]:
    """Cumulative; those who did not wait are in all of them."""
    bounds = [*(f"{bound:g}" for bound in WAIT_BUCKETS), "+Inf"]
    totals = itertools.accumulate(waits.counts, initial=at_once)
    return list(zip(bounds, itertools.islice(totals, 1, None), strict=True))
