"""How often the runtime was called, how often in vain, and how long it took, by kind of call.

Metric names, labels and buckets are the reference agent's (`runtime_operations_*`).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_LABELS = ("operation_type",)
_BUCKETS_S = tuple(0.005 * 2.5**n for n in range(14))
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")
_SPECIAL = {"UpdateContainerResources": "update_container", "Resume": "resume_container"}


@dataclass(slots=True)
class _Calls:
    errors: int = 0
    total_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS_S) + 1))


class RuntimeOperations(Collector):
    """Register it; its `observe` is what a CriRuntime tells of its calls."""

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}

    def observe(self, operation: str, duration_s: float, failed: bool) -> None:
        """Count one call of the CRI method `operation`."""
        calls = self._calls.setdefault(operation_type(operation), _Calls())
        calls.counts[bisect.bisect_left(_BUCKETS_S, duration_s)] += 1
        calls.total_s += duration_s
        calls.errors += failed

    def collect(self) -> Iterator[Metric]:
        made = CounterMetricFamily(
            "nodeagent_runtime_operations",
            "[ALPHA] Calls of the container runtime, by operation.",
            labels=_LABELS,
        )
        failed = CounterMetricFamily(
            "nodeagent_runtime_operations_errors",
            "[ALPHA] Calls of the container runtime that failed, by operation.",
            labels=_LABELS,
        )
        took = HistogramMetricFamily(
            "nodeagent_runtime_operations_duration_seconds",
            "[ALPHA] Duration of the calls of the container runtime, by operation.",
            labels=_LABELS,
        )
        for name, calls in sorted(self._calls.items()):
            made.add_metric([name], sum(calls.counts))
            if calls.errors:
                failed.add_metric([name], calls.errors)
            took.add_metric([name], _cumulative(calls.counts), calls.total_s)
        yield from (made, failed, took)


def operation_type(operation: str) -> str:
    """`RunPodSandbox` → `run_podsandbox`, as the reference agent writes it."""
    if special := _SPECIAL.get(operation):
        return special
    return _WORDS.sub("_", operation.replace("PodSandbox", "Podsandbox")).lower()


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:.6g}" for bound in _BUCKETS_S), "+Inf"]
    sums = [sum(counts[: index + 1]) for index in range(len(counts))]
    return list(zip(bounds, map(float, sums), strict=True))
