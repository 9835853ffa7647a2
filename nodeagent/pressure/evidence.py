"""Two readings of the machine → what every container and service did between them; pure.

Shares of time are 0 to 1, rates are per second; None is "not reported". A closer look adds what the
sampler does not read: services beside the pods, refaults, devices, swap traffic, stopped processes.
Nothing here judges: that is `causes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nodeagent.psi import RESOURCES, USEC_PER_S, Pressure
from nodeagent.stats.samples import CgroupSample, Limits, MemorySample, PodSample, Sample

_NSEC_PER_S = 1_000_000_000
_HARDLY_NSEC = 10_000_000  # of cpu time
_MIN_NS = 500_000_000  # between two readings: rates over less say little
NO_CGROUP = CgroupSample(0)


class Subject(NamedTuple):
    """A container of a pod, or a service by its cgroup; with neither, the machine as a whole."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    service: str = ""


class Reclaim(NamedTuple):
    """Counters of a cgroup that only a closer look reads; refaults in pages."""

    file_refaults: int | None = None
    anon_refaults: int | None = None
    refused_forks: int | None = None


class DiskCounters(NamedTuple):
    """Of a block device since boot; `busy_ms` sums the time of all its requests."""

    name: str
    requests: int
    busy_ms: int


class Stopped(NamedTuple):
    """A subject that does not run because somebody stopped it."""

    subject: Subject
    process: str  # its name, or "" where a whole cgroup is frozen
    pid: int = 0


@dataclass(frozen=True, slots=True)
class CloserLook:
    """`services` and `reclaims` by cgroup; `swapped_pages` are those read in and written out."""

    time_ns: int
    services: Mapping[str, CgroupSample] = field(default_factory=dict)
    reclaims: Mapping[str, Reclaim] = field(default_factory=dict)
    disks: Mapping[tuple[int, int], DiskCounters] = field(default_factory=dict)
    swapped_pages: int | None = None


class DeviceUse(NamedTuple):
    """Of one device, per second."""

    device: tuple[int, int]
    read_bytes: float
    write_bytes: float
    reads: float
    writes: float


class Activity(NamedTuple):
    """What a container or service did. `limits` are its own or, where it has none, its pod's.

    Stalls are the time in which some task of it waited; `throttled` is the time it owes to a cpu
    limit, at most 1. `killed` counts OOM kills.
    """

    subject: Subject
    limits: Limits
    cores: float
    throttled: float
    stalls: Mapping[str, float]  # by resource, where the kernel reports it
    memory: MemorySample
    anon_growth: float  # bytes per second, as the next
    swap_growth: float
    limit_hits: float
    killed: int
    major_faults: float
    threads: int
    thread_growth: int
    io: DeviceUse | None  # of the device it uses most
    file_refaults: float | None = None
    anon_refaults: float | None = None
    refused_forks: int = 0

    @property
    def contended(self) -> float:
        """The share of time it waited for a processor that others had."""
        return max(0.0, self.stalls.get("cpu", 0.0) - self.throttled)


class DiskLatency(NamedTuple):
    """`latency_ms` is a request's mean time, None without requests."""

    name: str
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about a span of time; `stalls` are the machine's, by resource."""

    time_ns: int
    seconds: float
    cpus: int
    cores: float
    stalls: Mapping[str, float]
    activities: tuple[Activity, ...]
    available_share: float | None = None  # of the machine's memory
    disks: Mapping[tuple[int, int], DiskLatency] = field(default_factory=dict)
    swapped_pages: float = 0.0
    stopped: tuple[Stopped, ...] = ()
    sees_services: bool = False

    def contended(self) -> float:
        """The share of time in which tasks waited for a processor that another task had.

        A container's stalls count less the time its own limit throttled it. What unmeasured tasks
        waited is what no throttled container explains.
        """
        node = self.stalls.get("cpu", 0.0)
        throttled = sum(min(a.throttled, a.stalls.get("cpu", 1.0)) for a in self.activities)
        measured = max((a.contended for a in self.activities), default=0.0)
        return min(node, max(measured, node - throttled))


def span(base: Sample, latest: Sample) -> float:
    """Seconds between two samples, 0 when they are too close for rates."""
    elapsed_ns = latest.time_ns - base.time_ns
    return elapsed_ns / _NSEC_PER_S if elapsed_ns >= _MIN_NS else 0.0


def stalls(base: Sample, latest: Sample) -> dict[str, float]:
    """The machine's shares of stalled time between two samples, by resource."""
    return stalled_shares(base.node.cgroup or NO_CGROUP, latest.node.cgroup or NO_CGROUP)


def evidence(
    base: Sample,
    latest: Sample,
    *,
    cpus: int,
    looks: tuple[CloserLook, CloserLook] | None = None,
    stopped: Sequence[Stopped] = (),
) -> Evidence:
    """What happened between two samples; `looks` are two closer ones, the older first."""
    before, after = looks or (CloserLook(0), CloserLook(0))
    activities = [*_of_pods(base, latest, before, after), *_of_services(before, after)]
    node, node_before = latest.node.cgroup or NO_CGROUP, base.node.cgroup or NO_CGROUP
    return Evidence(
        time_ns=latest.time_ns,
        seconds=span(base, latest),
        cpus=max(cpus, 1),
        cores=used_cores(node_before, node),
        stalls=stalled_shares(node_before, node),
        activities=tuple(activities),
        available_share=_available(latest),
        disks=dict(_disks(before, after)),
        swapped_pages=_rate(before.swapped_pages, after.swapped_pages, _seconds(before, after)),
        stopped=tuple(stopped),
        sees_services=looks is not None,
    )


def containers(sample: Sample) -> Iterator[tuple[PodSample, Subject, str, CgroupSample]]:
    """Every container with its pod, its name, its cgroup's path and numbers."""
    for pod in sample.pods:
        for container in pod.containers:
            target = pod.target
            subject = Subject(target.namespace, target.name, container.target.name)
            if container.cgroup is not None:
                yield pod, subject, container.path, container.cgroup


def _of_pods(
    base: Sample, latest: Sample, before: CloserLook, after: CloserLook
) -> Iterator[Activity]:
    earlier = {path: cgroup for _, _, path, cgroup in containers(base)}
    pods = {pod.path: pod.cgroup for pod in base.pods}
    for pod, subject, path, cgroup in containers(latest):
        was = earlier.get(path)
        if was is None or _slept(was, cgroup):
            continue
        above, above_was = pod.cgroup or NO_CGROUP, pods.get(pod.path) or NO_CGROUP
        activity = _activity(subject, was, cgroup, before.reclaims.get(path), _at(after, path))
        seconds = _seconds(above_was, above)
        yield activity._replace(
            limits=_tighter(cgroup.limits, above.limits),
            throttled=max(activity.throttled, _throttled(above_was, above, seconds)),
            limit_hits=max(activity.limit_hits, _limit_hits(above_was, above, seconds)),
        )


def _slept(was: CgroupSample, now: CgroupSample) -> bool:
    """Whether it hardly ran and no task of it waited: it neither causes nor suffers anything."""
    if was.cpu is None or now.cpu is None:
        return False
    if not 0 <= now.cpu.usage_nsec - was.cpu.usage_nsec < _HARDLY_NSEC:
        return False
    pairs = (
        (was.cpu_pressure, now.cpu_pressure),
        (was.memory_pressure, now.memory_pressure),
        (was.io_pressure, now.io_pressure),
    )
    return all(
        before is after or (before and after and before.some.total_usec == after.some.total_usec)
        for before, after in pairs
    )


def _of_services(before: CloserLook, after: CloserLook) -> Iterator[Activity]:
    for path, cgroup in after.services.items():
        was = before.services.get(path)
        if was is not None:
            subject = Subject(service=path.strip("/"))
            yield _activity(subject, was, cgroup, before.reclaims.get(path), _at(after, path))


def _at(look: CloserLook, path: str) -> Reclaim | None:
    return look.reclaims.get(path)


def _activity(
    subject: Subject,
    was: CgroupSample,
    cgroup: CgroupSample,
    reclaim_was: Reclaim | None,
    reclaim: Reclaim | None,
) -> Activity:
    seconds = _seconds(was, cgroup)
    memory, memory_was = cgroup.memory or MemorySample(), was.memory or MemorySample()
    threads = (cgroup.processes.threads if cgroup.processes else None) or 0
    threads_was = (was.processes.threads if was.processes else None) or 0
    refaults = reclaim or Reclaim()
    refaults_was = reclaim_was or Reclaim()
    return Activity(
        subject=subject,
        limits=cgroup.limits,
        cores=used_cores(was, cgroup),
        throttled=_throttled(was, cgroup, seconds),
        stalls=stalled_shares(was, cgroup),
        memory=memory,
        anon_growth=_change(memory_was.rss_bytes, memory.rss_bytes, seconds),
        swap_growth=_change(memory_was.swap_bytes, memory.swap_bytes, seconds),
        limit_hits=_limit_hits(was, cgroup, seconds),
        killed=_difference(memory_was.oom_kills, memory.oom_kills),
        major_faults=_rate(memory_was.major_page_faults, memory.major_page_faults, seconds),
        threads=threads,
        thread_growth=threads - threads_was,
        io=_busiest(was, cgroup, seconds),
        file_refaults=_known(refaults_was.file_refaults, refaults.file_refaults, seconds),
        anon_refaults=_known(refaults_was.anon_refaults, refaults.anon_refaults, seconds),
        refused_forks=_difference(refaults_was.refused_forks, refaults.refused_forks),
    )


def _seconds(was: CgroupSample | CloserLook, now: CgroupSample | CloserLook) -> float:
    elapsed_ns = now.time_ns - was.time_ns
    return elapsed_ns / _NSEC_PER_S if was.time_ns and elapsed_ns >= _MIN_NS else 0.0


def _difference(was: int | None, now: int | None) -> int:
    return max(0, now - was) if was is not None and now is not None else 0


def _rate(was: int | None, now: int | None, seconds: float) -> float:
    return _difference(was, now) / seconds if seconds else 0.0


def _known(was: int | None, now: int | None, seconds: float) -> float | None:
    return None if was is None or now is None else _rate(was, now, seconds)


def _change(was: int | None, now: int | None, seconds: float) -> float:
    """A rate that may be negative."""
    return (now - was) / seconds if was is not None and now is not None and seconds else 0.0


def used_cores(was: CgroupSample, now: CgroupSample) -> float:
    """Processors that a cgroup kept busy between two samples; 0 where it is not known."""
    used = _rate(was.cpu and was.cpu.usage_nsec, now.cpu and now.cpu.usage_nsec, _seconds(was, now))
    return used / _NSEC_PER_S


def _throttled(was: CgroupSample, now: CgroupSample, seconds: float) -> float:
    """The kernel sums over processors: several throttled at once count as all of the time."""
    before, after = was.cpu and was.cpu.throttled_nsec, now.cpu and now.cpu.throttled_nsec
    return min(1.0, _rate(before, after, seconds) / _NSEC_PER_S)


def _limit_hits(was: CgroupSample, now: CgroupSample, seconds: float) -> float:
    before, after = was.memory or MemorySample(), now.memory or MemorySample()
    return _rate(before.limit_failures, after.limit_failures, seconds)


def stalled_shares(was: CgroupSample, now: CgroupSample) -> dict[str, float]:
    """The shares of time in which a task of a cgroup waited, by resource that the kernel tells."""
    seconds, found = _seconds(was, now), {}
    for resource in RESOURCES:
        before: Pressure | None = getattr(was, f"{resource}_pressure")
        after: Pressure | None = getattr(now, f"{resource}_pressure")
        if before and after and seconds:
            stalled = _rate(before.some.total_usec, after.some.total_usec, seconds) / USEC_PER_S
            found[resource] = min(1.0, stalled)
    return found


def _tighter(own: Limits, above: Limits) -> Limits:
    """The container's limits, with its pod's where it has none."""
    return own._replace(
        memory_bytes=own.memory_bytes if own.memory_bytes is not None else above.memory_bytes,
        threads=own.threads if own.threads is not None else above.threads,
    )


def _busiest(was: CgroupSample, now: CgroupSample, seconds: float) -> DeviceUse | None:
    before = {(io.major, io.minor): io for io in was.io or ()}
    uses = []
    for io in now.io or ():
        key = io.major, io.minor
        first = before.get(key) or io._replace(read_bytes=0, write_bytes=0, reads=0, writes=0)
        pairs = zip(first[2:], io[2:], strict=True)
        uses.append(DeviceUse(key, *(_rate(old, new, seconds) for old, new in pairs)))
    busy = [use for use in uses if use.reads + use.writes + use.read_bytes + use.write_bytes]
    return max(busy, key=lambda use: use.read_bytes + use.write_bytes, default=None)


def _available(sample: Sample) -> float | None:
    memory = sample.node.cgroup.memory if sample.node.cgroup else None
    if memory is None or memory.working_set_bytes is None or not sample.node.memory_bytes:
        return None
    return max(0.0, 1 - memory.working_set_bytes / sample.node.memory_bytes)


def _disks(before: CloserLook, after: CloserLook) -> Iterator[tuple[tuple[int, int], DiskLatency]]:
    for device, now in after.disks.items():
        was = before.disks.get(device)
        requests = _difference(was.requests if was else None, now.requests)
        busy_ms = _difference(was.busy_ms if was else None, now.busy_ms)
        yield device, DiskLatency(now.name, busy_ms / requests if requests else None)
