"""A histogram of the pods' page, read by the values of its labels."""

from __future__ import annotations

from typing import NamedTuple

from nodeagent.pods.counts import Family, Timings


class Observed(NamedTuple):
    """How many durations were observed, and their sum."""

    count: int
    total_s: float


def observed(timings: Timings, family: Family) -> dict[tuple[str, ...], Observed]:
    series: dict[tuple[str, ...], dict[str, float]] = {}
    for sample in timings.collect(family).samples:
        if "le" not in sample.labels:
            series.setdefault(tuple(sample.labels.values()), {})[sample.name] = sample.value
    return {
        labels: Observed(int(values[f"{family.name}_count"]), values[f"{family.name}_sum"])
        for labels, values in series.items()
    }
