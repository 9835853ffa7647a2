"""A node's summary as rows of `orchctl node top`: node, its pods, their containers; pure.

Pressure has three values per line of pressure at the first look (5 min, 1 min, 10 s), and one more
with each further one: that is the sparkline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orch.wire import raw

MISSING = "-"
RESOURCES = ("cpu", "memory", "io")
_GIB, _MIB = 2**30, 2**20
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 8  # values a sparkline shows
_WINDOWS = ("avg300", "avg60", "avg10")

Record = Mapping[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """`depth` is 0 for a node, 1 for a pod, 2 for a container; None is "not reported".

    `pressure` holds for each resource the some and full share in percent, over 10 s.
    """

    key: Key
    name: str
    depth: int
    cpu_nano: int | None
    cpu_percent: float | None
    memory_bytes: int | None
    memory_percent: float | None
    pressure: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)

    def stalled(self) -> float:
        """The highest share of stalled time, to sort by."""
        return max((values[-1] for values in self.pressure.values()), default=0.0)


def rows(node: str, summary: Record, capacity: Record) -> list[Row]:
    """The rows of one node; `capacity` is that of its status, for the percentages."""
    from orch.wire.quantity import to_bytes, to_milli

    cpu_nano = to_milli(str(capacity.get("cpu", "0"))) * 10**6
    memory = to_bytes(str(capacity.get("memory", "0")))
    return [
        _row((node, *names), names[-1] if names else node, len(names), record, cpu_nano, memory)
        for names, record in _records(summary)
    ]


def _records(summary: Record) -> Iterator[tuple[Key, Record]]:
    yield (), raw.mapping(summary, "node")
    for pod in sorted(raw.records(summary, "pods"), key=_pod_name):
        yield (_pod_name(pod),), pod
        for container in sorted(raw.records(pod, "containers"), key=lambda c: raw.text(c, "name")):
            yield (_pod_name(pod), raw.text(container, "name")), container


def _pod_name(pod: Record) -> str:
    return f"{raw.text(pod, 'podRef', 'namespace')}/{raw.text(pod, 'podRef', 'name')}"


def _row(key: Key, name: str, depth: int, record: Record, cpu_nano: int, memory_bytes: int) -> Row:
    used_nano = _number(record, "cpu", "usageNanoCores")
    used_bytes = _number(record, "memory", "workingSetBytes")
    return Row(
        key, name, depth, used_nano, _share(used_nano, cpu_nano),
        used_bytes, _share(used_bytes, memory_bytes), _pressure(record),
    )  # fmt: skip


def _number(record: Record, *path: str) -> int | None:
    found = raw.value(record, *path)
    return found if isinstance(found, int) else None


def _share(used: int | None, whole: int) -> float | None:
    return None if used is None or not whole else 100 * used / whole


def _pressure(record: Record) -> dict[tuple[str, str], tuple[float, ...]]:
    found = {}
    for resource in RESOURCES:
        psi = raw.mapping(record, resource, "psi")
        for kind in ("some", "full"):
            values = [raw.value(psi, kind, window) for window in _WINDOWS]
            if all(isinstance(value, int | float) for value in values):
                found[resource, kind] = tuple(float(value or 0) for value in values)
    return found


class History:
    """The pressure seen so far, by row; rows that are gone are forgotten."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, str, str], deque[float]] = {}

    def add(self, found: Sequence[Row]) -> None:
        """Take in one more look."""
        seen = self._seen
        self._seen = {}
        for row in found:
            for (resource, kind), values in row.pressure.items():
                key = (row.key, resource, kind)
                known = seen.get(key)
                self._seen[key] = deque(values if known is None else known, maxlen=_WIDTH)
                if known is not None:
                    self._seen[key].append(values[-1])

    def of(self, row: Row, resource: str, kind: str) -> tuple[float, ...]:
        return tuple(self._seen.get((row.key, resource, kind), ()))


def sparkline(values: Sequence[float]) -> str:
    """Percentages as bars, on one scale for all: 0 is the lowest bar, 50 % and more the highest."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, max(0, -int(-value * top // 50)))] for value in values)


def cores(cpu: Record) -> str:
    return shown_cores(_number(cpu, "usageNanoCores"))


def shown_cores(nano: int | None) -> str:
    return MISSING if nano is None else f"{nano / 10**9:.3f}"


def size(record: Record, *path: str) -> str:
    return shown_size(_number(record, *path))


def shown_size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return MISSING
    large = size_bytes >= _GIB
    return f"{size_bytes / _GIB:.1f}Gi" if large else f"{size_bytes / _MIB:.1f}Mi"
