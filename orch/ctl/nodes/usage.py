"""A node's summary as rows of `orchctl node top`: node, its pods, their containers; pure.

The sparkline of a pressure begins with its averages (5 min, 1 min, 10 s) and gains one value with
each refresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from orch.wire import raw
from orch.wire.quantity import to_bytes, to_milli

MISSING = "-"
RESOURCES = ("cpu", "memory", "io")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 8  # values a sparkline shows
_WINDOWS = ("avg300", "avg60", "avg10")

Record = Mapping[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A node, a pod or a container, by the length of `key`; None is "not reported".

    `pressure` holds for each resource the some and full share in percent, over 10 s.
    """

    key: Key
    cpu_nano: int | None
    cpu_percent: float | None
    memory_bytes: int | None
    memory_percent: float | None
    pressure: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """0 for a node, 1 for a pod, 2 for a container."""
        return len(self.key) - 1

    def stalled(self) -> float:
        """The highest share of stalled time, to sort by."""
        return max((values[-1] for values in self.pressure.values()), default=0.0)


def rows(node: str, summary: Record, capacity: Record) -> list[Row]:
    """The rows of one node; `capacity` is that of its status, for the percentages."""
    cpu_nano = to_milli(str(capacity.get("cpu", "0"))) * 10**6
    memory_bytes = to_bytes(str(capacity.get("memory", "0")))
    found = []
    for key, record in _records(node, summary):
        used_nano = number(record, "cpu", "usageNanoCores")
        used_bytes = number(record, "memory", "workingSetBytes")
        shares = _share(used_nano, cpu_nano), _share(used_bytes, memory_bytes)
        found.append(Row(key, used_nano, shares[0], used_bytes, shares[1], _pressure(record)))
    return found


def _records(node: str, summary: Record) -> Iterator[tuple[Key, Record]]:
    yield (node,), raw.mapping(summary, "node")
    for pod in sorted(raw.records(summary, "pods"), key=_pod_name):
        yield (node, _pod_name(pod)), pod
        for container in sorted(raw.records(pod, "containers"), key=lambda c: raw.text(c, "name")):
            yield (node, _pod_name(pod), raw.text(container, "name")), container


def _pod_name(pod: Record) -> str:
    return f"{raw.text(pod, 'podRef', 'namespace')}/{raw.text(pod, 'podRef', 'name')}"


def number(record: Record, *path: str) -> int | None:
    """The number at a path; None when it is not reported."""
    found = raw.value(record, *path)
    return found if isinstance(found, int) else None


def _share(used: int | None, whole: int) -> float | None:
    return None if used is None or not whole else 100 * used / whole


def _pressure(record: Record) -> dict[tuple[str, str], tuple[float, ...]]:
    found = {}
    for resource, kind in product(RESOURCES, ("some", "full")):
        values = [raw.value(record, resource, "psi", kind, window) for window in _WINDOWS]
        if all(isinstance(value, int | float) for value in values):
            found[resource, kind] = tuple(float(value or 0) for value in values)
    return found


def as_data(row: Row) -> dict[str, Any]:
    """A row for programs: names, amounts, shares in percent; what is not reported is null."""
    names = dict(zip(("node", "pod", "container"), row.key, strict=False))
    pressure: dict[str, dict[str, float]] = {}
    for (resource, kind), values in row.pressure.items():
        pressure.setdefault(resource, {})[kind] = values[-1]
    return {
        **names,
        "cpuNanoCores": row.cpu_nano,
        "cpuPercent": row.cpu_percent,
        "memoryBytes": row.memory_bytes,
        "memoryPercent": row.memory_percent,
        "pressure": pressure,
    }


class History:
    """The pressure seen so far, by row; rows that are gone are dropped."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, tuple[str, str]], tuple[float, ...]] = {}

    def add(self, found: Sequence[Row]) -> None:
        """Add the values of one refresh."""
        pressures = [((row.key, key), row.pressure[key]) for row in found for key in row.pressure]
        self._seen = {
            key: (*self._seen[key], values[-1])[-_WIDTH:] if key in self._seen else values
            for key, values in pressures
        }

    def of(self, row: Row, resource: str, kind: str) -> tuple[float, ...]:
        return self._seen.get((row.key, (resource, kind)), ())


def sparkline(values: Sequence[float]) -> str:
    """Percentages as bars on a fixed scale: 0 is the lowest bar, 50 % and more the highest."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, max(0, -int(-value * top // 50)))] for value in values)


def cores(record: Record) -> str:
    """The use of cpu of a node, pod or container."""
    return cores_text(number(record, "cpu", "usageNanoCores"))


def cores_text(nano: int | None) -> str:
    return MISSING if nano is None else f"{nano / 10**9:.3f}"


def size_text(size_bytes: int | None) -> str:
    if size_bytes is None:
        return MISSING
    unit, name = (2**30, "Gi") if size_bytes >= 2**30 else (2**20, "Mi")
    return f"{size_bytes / unit:.1f}{name}"
