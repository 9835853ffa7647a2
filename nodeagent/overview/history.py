"""Usage and pressure of the machine and its pods in the last ten minutes, in 60 points.

Filled after each reading of the sampling loop, only where the overview page is on. Bounded: so many
points of four bytes, of so many pods, and a pod that is gone takes its points along.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import nan

from nodeagent.pressure.evidence import NO_CGROUP, stalled_shares, used_cores
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import CgroupSample, Sample

POINTS = 60
STEP_NS = 10_000_000_000
MAX_PODS = 512
_EARLY_NS = 500_000_000  # a reading that is due may come so much before its time
_LONGEST_SPAN = 6  # points that one reading stands for; those before it are unknown

Subject = str | None  # a pod's uid, or None for the machine


def _unknown() -> array[float]:
    return array("f", [nan]) * POINTS


@dataclass(frozen=True, slots=True)
class Series:
    """The last `POINTS` values of a subject, the oldest first; NaN where nothing is known.

    `cores` are processors in use, `memory_bytes` the working set; `stalls` are shares of time in
    which some task waited, by resource that the kernel tells.
    """

    cores: array[float] = field(default_factory=_unknown)
    memory_bytes: array[float] = field(default_factory=_unknown)
    stalls: dict[str, array[float]] = field(default_factory=dict)

    def append(self, was: CgroupSample | None, now: CgroupSample, points: int, gap: int) -> None:
        """Add what happened between two samples, as so many points after a gap."""
        memory = now.memory and now.memory.working_set_bytes
        _push(self.memory_bytes, nan if memory is None else memory, points, gap)
        _push(self.cores, used_cores(was, now) if was and was.cpu else nan, points, gap)
        shares = stalled_shares(was, now) if was else {}
        for resource in shares.keys() | self.stalls.keys():
            values = self.stalls.setdefault(resource, _unknown())
            _push(values, shares.get(resource, nan), points, gap)


def _push(values: array[float], value: float, points: int, gap: int) -> None:
    del values[: points + gap]
    values.extend([nan] * gap + [value] * points)


class History:
    """Call `look` after each reading of the sampling loop."""

    def __init__(self, sampler: Sampler) -> None:
        self.node = Series()
        self._sampler = sampler
        self._pods: dict[str, Series] = {}
        self._last: Sample | None = None

    def of_pod(self, uid: str) -> Series | None:
        """None for a pod that was not measured."""
        return self._pods.get(uid)

    def look(self) -> None:
        """Add a point when one is due."""
        latest, last = self._sampler.latest, self._last
        if latest is None:
            return
        elapsed_ns = latest.time_ns - last.time_ns if last else STEP_NS
        if 0 <= elapsed_ns < STEP_NS - _EARLY_NS:
            return
        steps = min(max(1, round(elapsed_ns / STEP_NS)), POINTS)
        points = steps if steps <= _LONGEST_SPAN else 1
        before = dict(_cgroups(last)) if last and elapsed_ns > 0 else {}
        now = dict(_cgroups(latest))
        self._add(before, now, points, steps - points)
        self._last = latest

    def _add(
        self,
        before: Mapping[Subject, CgroupSample],
        now: Mapping[Subject, CgroupSample],
        points: int,
        gap: int,
    ) -> None:
        self._pods = {uid: series for uid, series in self._pods.items() if uid in now}
        for subject, cgroup in now.items():
            series = self.node if subject is None else self._of(subject)
            if series:
                series.append(before.get(subject), cgroup, points, gap)

    def _of(self, uid: str) -> Series | None:
        if uid not in self._pods and len(self._pods) >= MAX_PODS:
            return None
        return self._pods.setdefault(uid, Series())


def _cgroups(sample: Sample) -> Iterator[tuple[Subject, CgroupSample]]:
    yield None, sample.node.cgroup or NO_CGROUP
    for pod in sample.pods:
        if pod.cgroup is not None:
            yield pod.target.uid, pod.cgroup
