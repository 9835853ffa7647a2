"""Usage of nodes and containers, from two readings of their agents' `/metrics/resource`; pure.

CPU is a counter: a rate takes two readings of the same container, its window is the time between
their own stamps. A counter that went back was reset, and gives no rate until the next reading. A
node may send anything: a page is bounded, and read in time linear in its size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orch.wire import times

NODE = ("", "", "")  # the place of the node itself
Place = tuple[str, str, str]  # namespace, pod, container

MAX_BYTES = 4 * 2**20
MAX_LINE_BYTES = 2048  # names of namespace, pod and container have at most 379
MAX_LINES = 50_000
MAX_PIECES = 20_000  # in which it arrives

# Possessive (*+): what has matched is never tried another way.
_SAMPLE = re.compile(
    rb"(?:node|container)_(?:(cpu_usage_seconds_total)|memory_working_set_bytes)"
    rb'(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*+")*+)\})? ([0-9.eE+-]{1,32}) (\d{1,13})'
)
_LABEL = re.compile(rb'(?:^|,)(namespace|pod|container)="((?:[^"\\]|\\.)*+)"')
_MAX_CPU_S = 1e12
_MAX_MEMORY_BYTES = 2**60
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


class PageReader:
    """CPU and memory from a page that arrives in pieces; other lines are skipped."""

    def __init__(self) -> None:
        self._cpu: dict[Place, Amount] = {}
        self._memory_bytes: dict[Place, int] = {}
        self._rest = b""
        self._bytes = self._lines = self._pieces = 0

    def feed(self, piece: bytes) -> None:
        """ValueError for a page that no agent sends."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._pieces += 1
        self._bytes += len(piece)
        self._lines += len(lines)
        for has, limit, unit in (
            (self._bytes, MAX_BYTES, "bytes"),
            (self._lines, MAX_LINES, "lines"),
            (self._pieces, MAX_PIECES, "pieces"),
            (max(map(len, (*lines, self._rest))), MAX_LINE_BYTES, "bytes in a line"),
        ):
            if has > limit:
                raise ValueError(f"the page has more than {limit} {unit}")
        for line in lines:
            self._read(line)

    def end(self) -> Reading:
        """What the whole page says."""
        self._read(self._rest)
        return Reading(self._cpu, self._memory_bytes)

    def _read(self, line: bytes) -> None:
        found = _SAMPLE.fullmatch(line)
        if found is None:
            return
        is_cpu, labels, digits, at_ms = found.groups()
        try:
            value = float(digits)
        except ValueError:
            return
        known = {key: text.decode(errors="replace") for key, text in _LABEL.findall(labels or b"")}
        place = (known.get(b"namespace", ""), known.get(b"pod", ""), known.get(b"container", ""))
        if is_cpu and 0 <= value < _MAX_CPU_S:
            self._cpu[place] = Amount(value, int(at_ms))
        elif not is_cpu and 0 <= value < _MAX_MEMORY_BYTES:
            self._memory_bytes[place] = int(value)


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


def node_record(
    api_version: str, node: Mapping[str, Any], usage: Usage, now: datetime
) -> dict[str, Any]:
    """A NodeMetrics record."""
    head = _head((api_version, "NodeMetrics"), node, usage, now)
    return {**head, "usage": usage.amounts()}


def pod_record(
    api_version: str, pod: Mapping[str, Any], by_container: Mapping[str, Usage], now: datetime
) -> dict[str, Any] | None:
    """A PodMetrics record; None without the usage of any container."""
    if not by_container:
        return None
    latest = max(by_container.values(), key=lambda usage: usage.at_ms)
    containers = [{"name": name, "usage": u.amounts()} for name, u in sorted(by_container.items())]
    head = _head((api_version, "PodMetrics"), pod, latest, now)
    return {**head, "containers": containers}


def _head(
    named: tuple[str, str], of: Mapping[str, Any], usage: Usage, now: datetime
) -> dict[str, Any]:
    """`named`: apiVersion and kind."""
    api_version, kind = named
    sent = of["metadata"]
    metadata = {name: sent[name] for name in ("name", "namespace", "labels") if sent.get(name)}
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {**metadata, "creationTimestamp": times.format_time(now)},
        "timestamp": times.format_time(datetime.fromtimestamp(usage.at_ms / 1000, UTC)),
        "window": f"{usage.window_s:.3f}s",
    }
