"""The metrics of checkpoints."""

from __future__ import annotations

from prometheus_client.core import Metric

from nodeagent.archives.reports import CheckpointCounts, StoreState
from nodeagent.metrics.agent import checkpoint_metrics


def values(counts: CheckpointCounts) -> dict[str, float]:
    """`name{label values}` → value."""
    families: list[Metric] = list(checkpoint_metrics(counts))
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_at_first_every_counter_is_zero_and_the_store_absent() -> None:
    seen = values(CheckpointCounts())

    assert seen["nodeagent_checkpoints_total{success}"] == 0
    assert seen["nodeagent_checkpoints_total{error}"] == 0
    assert seen["nodeagent_checkpoint_archives_removed_total{freeSpace}"] == 0
    assert seen["nodeagent_containers_thawed_total"] == 0
    assert not any(name.startswith("nodeagent_checkpoint_store") for name in seen)


def test_counts_are_shown() -> None:
    counts = CheckpointCounts()
    counts.results["success"] += 2
    for duration_s in (0.3, 500.0):
        counts.durations.observe(duration_s)
    counts.results["error"] += 1
    counts.removed["age"] += 4
    counts.thawed += 1
    counts.store = StoreState(7, 2, 1000, 5000, 2000, 30)

    seen = values(counts)

    assert seen["nodeagent_checkpoints_total{success}"] == 2
    assert seen["nodeagent_checkpoints_total{error}"] == 1
    assert seen["nodeagent_checkpoint_duration_seconds_bucket{0.25}"] == 0
    assert seen["nodeagent_checkpoint_duration_seconds_bucket{0.5}"] == 1
    assert seen["nodeagent_checkpoint_duration_seconds_bucket{120}"] == 1
    assert seen["nodeagent_checkpoint_duration_seconds_bucket{+Inf}"] == 2
    assert seen["nodeagent_checkpoint_duration_seconds_sum"] == 500.3
    assert seen["nodeagent_checkpoint_archives_removed_total{age}"] == 4
    assert seen["nodeagent_containers_thawed_total"] == 1
    assert seen["nodeagent_checkpoint_archives"] == 7
    assert seen["nodeagent_checkpoint_pinned_archives"] == 2
    assert seen["nodeagent_checkpoint_store_bytes"] == 1000
    assert seen["nodeagent_checkpoint_store_free_bytes"] == 5000
    assert seen["nodeagent_checkpoint_store_limit_bytes"] == 2000
    assert seen["nodeagent_checkpoint_store_excess_bytes"] == 30
