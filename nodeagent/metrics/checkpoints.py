"""The checkpoints' part of the agent's metrics page, read from their counts when it is asked for.

The runtime's own call is among `runtime_operations` as `checkpoint_container`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from nodeagent.checkpoint.bounds import REASONS
from nodeagent.checkpoint.counts import BUCKETS_S, CheckpointCounts, StoreState

_ALPHA = "[ALPHA] "
_RESULTS = ("success", "error")


def checkpoint_metrics(counts: CheckpointCounts) -> Iterator[Metric]:
    """Checkpoints made and failed, how long they took, archives removed, and the store's size."""
    made = CounterMetricFamily(
        "nodeagent_checkpoints", _ALPHA + "Checkpoints of containers, by result.", labels=["result"]
    )
    for result in _RESULTS:
        made.add_metric([result], counts.results[result])
    yield made
    yield _durations(counts)
    removed = CounterMetricFamily(
        "nodeagent_checkpoint_archives_removed",
        _ALPHA + "Checkpoint archives removed, by the bound that was exceeded.",
        labels=["bound"],
    )
    for reason in REASONS:
        removed.add_metric([reason], counts.removed[reason])
    yield removed
    yield CounterMetricFamily(
        "nodeagent_containers_thawed",
        _ALPHA + "Containers that a broken-off checkpoint left frozen, freed again.",
        value=counts.thawed,
    )
    if counts.store:
        yield from _store(counts.store)


def _durations(counts: CheckpointCounts) -> Metric:
    bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
    sums = itertools.accumulate(map(float, counts.durations))
    family = HistogramMetricFamily(
        "nodeagent_checkpoint_duration_seconds",
        _ALPHA + "Duration of checkpoints, from the request to the published archive.",
    )
    family.add_metric([], list(zip(bounds, sums, strict=True)), counts.total_s)
    return family


def _store(store: StoreState) -> Iterator[Metric]:
    for name, text, value in (
        ("archives", "Checkpoint archives in the store.", store.archives),
        ("pinned_archives", "Checkpoint archives that are pinned.", store.pinned),
        ("store_bytes", "Bytes of all checkpoint archives.", store.used_bytes),
        ("store_limit_bytes", "Bytes they may take, 0 without a limit.", store.limit_bytes),
        ("store_free_bytes", "Bytes free on the store's file system.", store.free_bytes),
        ("store_excess_bytes", "Bytes pinned beyond what may be held.", store.excess_bytes),
    ):
        yield GaugeMetricFamily(f"nodeagent_checkpoint_{name}", _ALPHA + text, value=value)
