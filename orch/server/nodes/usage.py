"""Usage of nodes and containers, from two readings of their agents' `/metrics/resource`; pure.

CPU is a counter: a rate takes two readings of the same container, its window is the time between
their own stamps. A counter that went back was reset, and gives no rate until the next reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orch.wire import times
from orch.wire.records.usage import API_VERSION

NODE = ("", "", "")  # the place of the node itself
Place = tuple[str, str, str]  # namespace, pod, container

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? ([0-9.eE+-]+) (\d{1,15})")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_CPU = ("node_cpu_usage_seconds_total", "container_cpu_usage_seconds_total")
_MEMORY = ("node_memory_working_set_bytes", "container_memory_working_set_bytes")
_NSEC_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Amount:
    """`at_ms`: when the agent read the CPU counter, in milliseconds since the epoch."""

    cpu_s: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One page: total CPU seconds and bytes of memory by place."""

    cpu: Mapping[Place, Amount] = field(default_factory=dict)
    memory_bytes: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """`cpu_cores` on average over `window_s`, which ended at `at_ms`."""

    cpu_cores: float
    memory_bytes: int
    at_ms: int
    window_s: float

    def amounts(self) -> dict[str, str]:
        """By resource name, as quantities in the units that clients expect."""
        return {
            "cpu": f"{round(self.cpu_cores * _NSEC_PER_S)}n",
            "memory": f"{self.memory_bytes // 1024}Ki",
        }


def parse_page(text: str) -> Reading:
    """CPU and memory from a page; other lines are skipped."""
    cpu: dict[Place, Amount] = {}
    memory: dict[Place, int] = {}
    for name, place, value, at_ms in _samples(text):
        if name in _CPU:
            cpu[place] = Amount(value, at_ms)
        elif name in _MEMORY:
            memory[place] = int(value)
    return Reading(cpu, memory)


def _samples(text: str) -> Iterator[tuple[str, Place, float, int]]:
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        name, labels, value, at_ms = found.groups()
        known = dict(_LABEL.findall(labels or ""))
        place = (known.get("namespace", ""), known.get("pod", ""), known.get("container", ""))
        try:
            yield name, place, float(value), int(at_ms)
        except ValueError:
            continue


def usages(before: Reading, now: Reading) -> dict[Place, Usage]:
    """The usage of every place that both readings have and whose counter was not reset."""
    found = {}
    for place, amount in now.cpu.items():
        earlier = before.cpu.get(place)
        memory = now.memory_bytes.get(place)
        if earlier is None or memory is None or amount.at_ms <= earlier.at_ms:
            continue
        window_s = (amount.at_ms - earlier.at_ms) / 1000
        used_s = amount.cpu_s - earlier.cpu_s
        if used_s >= 0:
            found[place] = Usage(used_s / window_s, memory, amount.at_ms, window_s)
    return found


def node_record(node: Mapping[str, Any], usage: Usage, now: datetime) -> dict[str, Any]:
    """A NodeMetrics record."""
    return {**_head("NodeMetrics", node, usage, now), "usage": usage.amounts()}


def pod_record(
    pod: Mapping[str, Any], by_container: Mapping[str, Usage], now: datetime
) -> dict[str, Any] | None:
    """A PodMetrics record; None without the usage of any container."""
    if not by_container:
        return None
    latest = max(by_container.values(), key=lambda usage: usage.at_ms)
    containers = [{"name": name, "usage": u.amounts()} for name, u in sorted(by_container.items())]
    return {**_head("PodMetrics", pod, latest, now), "containers": containers}


def _head(kind: str, of: Mapping[str, Any], usage: Usage, now: datetime) -> dict[str, Any]:
    sent = of["metadata"]
    metadata = {name: sent[name] for name in ("name", "namespace", "labels") if sent.get(name)}
    return {
        "kind": kind,
        "apiVersion": API_VERSION,
        "metadata": {**metadata, "creationTimestamp": times.format_time(now)},
        "timestamp": times.format_time(datetime.fromtimestamp(usage.at_ms / 1000, UTC)),
        "window": f"{usage.window_s:.3f}s",
    }
