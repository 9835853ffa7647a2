"""A sample → the body of /stats/summary, as a plain dict; pure.

Field names and meanings are those of the stats API v1alpha1. A value that the sample does not have
is absent, never zero. `usageNanoCores` comes from the counters of two samples and is absent without
an older one, when no time passed, or when the counter went backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.psi import NO_STALL, Pressure
from nodeagent.stats import summary_disks as disks
from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    MemorySample,
    NodeSample,
    PodSample,
    RlimitSample,
    Sample,
    SwapSample,
    SystemSample,
)
from nodeagent.stats.summary_disks import Json, timestamp

_NSEC_PER_S = 1_000_000_000
_Bases = Mapping[str, CgroupSample]


def build_summary(
    sample: Sample,
    previous: Sample | None,
    *,
    node_name: str,
    only_cpu_and_memory: bool = False,
    psi: bool = True,
) -> Json:
    """The Summary object. `previous` is the base of rates; `psi` is the feature gate.

    A pod whose start time is unknown is left out, unless only cpu and memory are requested.
    """
    builder = _Builder(_bases_of(previous), full=not only_cpu_and_memory, psi=psi)
    pods = [
        builder.pod(pod, sample.node)
        for pod in sample.pods
        if pod.target.started_at_ns > 0 or only_cpu_and_memory
    ]
    return {"node": builder.node(sample.node, node_name), "pods": pods}


def rate_nanocores(latest: CgroupSample, base: CgroupSample | None) -> int | None:
    """Billionths of a core used between two samples; None when they yield no rate."""
    if latest.cpu is not None and latest.cpu.usage_nanocores is not None:
        return latest.cpu.usage_nanocores
    if base is None or base.cpu is None or latest.cpu is None:
        return None
    elapsed_ns = latest.time_ns - base.time_ns
    used_ns = latest.cpu.usage_nsec - base.cpu.usage_nsec
    if elapsed_ns <= 0 or used_ns < 0:
        return None
    rate = used_ns * _NSEC_PER_S // elapsed_ns
    return rate if rate <= UINT64_MAX else None


def _bases_of(previous: Sample | None) -> dict[str, CgroupSample]:
    """Base samples by container id, pod uid and system part; a new container has none."""
    if previous is None:
        return {}
    bases = {
        container.target.id: container.cgroup
        for pod in previous.pods
        for container in pod.containers
        if container.cgroup
    }
    bases.update({f"pod {pod.target.uid}": pod.cgroup for pod in previous.pods if pod.cgroup})
    bases.update({f"system {part.name}": part.cgroup for part in previous.node.system})
    if previous.node.cgroup:
        bases["node"] = previous.node.cgroup
    return bases


class _Builder:
    def __init__(self, bases: _Bases, *, full: bool, psi: bool) -> None:
        self._bases = bases
        self._full = full
        self._psi = psi

    def node(self, node: NodeSample, node_name: str) -> Json:
        out: Json = {"nodeName": node_name}
        if node.system:
            out["systemContainers"] = [self._system_part(part) for part in node.system]
        if node.boot_time_ns > 0:
            out["startTime"] = timestamp(node.boot_time_ns)
        if node.cgroup:
            self._add_usage(out, node.cgroup, "node", node.memory_bytes or None)
        if node.swap:
            out["swap"] = _node_swap(node.swap)
        if self._full:
            _put(out, "network", disks.network_json(node.network))
            _put(out, "fs", disks.fs_json(node.fs))
            _put(out, "runtime", _runtime(node))
            _put(out, "rlimit", _rlimit(node.rlimit))
        return out

    def _system_part(self, part: SystemSample) -> Json:
        out: Json = {"name": part.name}
        if part.started_at_ns > 0:
            out["startTime"] = timestamp(part.started_at_ns)
        limit = part.cgroup.limits.memory_bytes
        self._add_usage(out, part.cgroup, f"system {part.name}", limit)
        return out

    def pod(self, pod: PodSample, node: NodeSample) -> Json:
        target = pod.target
        out: Json = {
            "podRef": {"name": target.name, "namespace": target.namespace, "uid": target.uid}
        }
        if target.started_at_ns > 0:
            out["startTime"] = timestamp(target.started_at_ns)
        out["containers"] = [self._container(c) for c in pod.containers if c.cgroup]
        if pod.cgroup:
            limit = pod.cgroup.limits.memory_bytes
            time = self._add_usage(out, pod.cgroup, f"pod {target.uid}", limit)
            _add_swap(out, pod.cgroup, time)
        if self._full:
            _put(out, "network", disks.network_json(pod.network))
            if pod.volumes:
                out["volume"] = [disks.volume_json(volume) for volume in pod.volumes]
            _put(out, "ephemeral-storage", disks.fs_json(disks.ephemeral_storage(pod, node.fs)))
            _put(out, "process_stats", _processes(pod))
        return out

    def _container(self, container: ContainerSample) -> Json:
        target, sample = container.target, container.cgroup
        out: Json = {"name": target.name}
        if target.started_at_ns > 0:
            out["startTime"] = timestamp(target.started_at_ns)
        if sample:
            time = self._add_usage(out, sample, target.id, sample.limits.memory_bytes)
            _add_swap(out, sample, time)
        if container.rootfs and self._full:
            out["rootfs"] = disks.fs_json(container.rootfs)
        if container.logs and self._full:
            out["logs"] = disks.fs_json(container.logs)
        return out

    def _add_usage(self, out: Json, sample: CgroupSample, key: str, limit: int | None) -> str:
        """Add cpu, memory and io (which exists only for pressure); returns their stamp."""
        # Runs four times for a pod of three containers: needless calls are avoided.
        time_ns, cpu, memory, _, _, cpu_pressure, memory_pressure, io_pressure, _ = sample
        time, psi = timestamp(time_ns), self._psi
        if cpu:
            out["cpu"] = part = {"time": time, "usageCoreNanoSeconds": cpu.usage_nsec}
            rate = rate_nanocores(sample, self._bases.get(key))
            if rate is not None:
                part["usageNanoCores"] = rate
            if cpu_pressure and psi:
                part["psi"] = _NO_STALL if cpu_pressure is NO_STALL else _psi(cpu_pressure)
        if memory:
            out["memory"] = part = _memory(memory, limit, time)
            if memory_pressure and psi:
                part["psi"] = _NO_STALL if memory_pressure is NO_STALL else _psi(memory_pressure)
        if io_pressure and psi and self._full:
            stalls = _NO_STALL if io_pressure is NO_STALL else _psi(io_pressure)
            out["io"] = {"time": time, "psi": stalls}
        return time


_ZERO = {"total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0}
_NO_STALL = {"some": _ZERO, "full": _ZERO}


def _psi(pressure: Pressure) -> Json:
    (avg10, avg60, avg300, total), full = pressure
    out = {"some": {"total": total, "avg10": avg10, "avg60": avg60, "avg300": avg300}}
    if full is not None:
        avg10, avg60, avg300, total = full
        out["full"] = {"total": total, "avg10": avg10, "avg60": avg60, "avg300": avg300}
    return out


def _memory(memory: MemorySample, limit: int | None, time: str) -> Json:
    usage, working_set, rss, _, _, _, _, _, _, faults, major_faults, _, _, _ = memory
    out: Json = {
        "time": time,
        "usageBytes": usage,
        "workingSetBytes": working_set,
        "rssBytes": rss,
        "pageFaults": faults,
        "majorPageFaults": major_faults,
    }
    if None in (usage, working_set, rss, faults, major_faults):
        out = disks.without_none(out)
    if limit is not None and working_set is not None:
        out["availableBytes"] = limit - working_set if limit > working_set else 0
    return out


def _add_swap(out: Json, sample: CgroupSample, time: str) -> None:
    used = sample.memory.swap_bytes if sample.memory else None
    if used is None:
        return
    out["swap"] = swap = {"time": time, "swapUsageBytes": used}
    limit = sample.limits.swap_bytes
    if limit is not None:
        swap["swapAvailableBytes"] = max(limit - used, 0)


def _node_swap(swap: SwapSample) -> Json:
    return {
        "time": timestamp(swap.time_ns),
        "swapAvailableBytes": swap.total_bytes - swap.used_bytes,
        "swapUsageBytes": swap.used_bytes,
    }


def _rlimit(rlimit: RlimitSample | None) -> Json | None:
    if rlimit is None:
        return None
    out: Json = {"time": timestamp(rlimit.time_ns)}
    _put(out, "maxpid", rlimit.max_pids)
    _put(out, "curproc", rlimit.running)
    return out


def _runtime(node: NodeSample) -> Json | None:
    out: Json = {}
    _put(out, "imageFs", disks.fs_json(node.image_fs))
    _put(out, "containerFs", disks.fs_json(node.container_fs))
    return out or None


def _processes(pod: PodSample) -> Json | None:
    count = pod.count_processes()
    return None if count is None else {"process_count": count}


def _put(out: Json, key: str, value: Any) -> None:
    if value is not None:
        out[key] = value
