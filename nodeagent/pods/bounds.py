"""What bounds a pod as a whole: cgroup file → value, for cgroup v1 and v2; pure.

The pod gets the sum of what its containers ask for, and is limited only when each of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeagent.pods import qos, spec
from orch.wire import quantity
from orch.wire.pods import Pod


def pod_bounds(pod: Pod, *, unified: bool) -> Mapping[str, str]:
    """The files to write in the pod's cgroup; those a hierarchy does not have are for another."""
    limits = [qos.limits(c) for c in pod.spec.containers]
    shares = spec.cpu_shares(_requested_milli(pod))
    bounds = share_bound(shares, unified=unified)
    if all("cpu" in one for one in limits):
        quota = spec.cpu_quota_usec(sum(quantity.to_milli(one["cpu"]) for one in limits))
        if quota and unified:
            bounds["cpu.max"] = f"{quota} {spec.CFS_PERIOD_USEC}"
        elif quota:
            bounds["cpu.cfs_period_us"] = str(spec.CFS_PERIOD_USEC)
            bounds["cpu.cfs_quota_us"] = str(quota)
    if all("memory" in one for one in limits):
        total_bytes = sum(quantity.to_bytes(one["memory"]) for one in limits)
        bounds["memory.max" if unified else "memory.limit_in_bytes"] = str(total_bytes)
    return bounds


def class_shares(pods: Iterable[Pod]) -> dict[str, int]:
    """cpu shares of the classes that have a cgroup of their own: BestEffort gets the least."""
    burstable = (pod for pod in pods if qos.qos_class(pod) == qos.BURSTABLE)
    return {
        qos.BURSTABLE: spec.cpu_shares(sum(map(_requested_milli, burstable))),
        qos.BEST_EFFORT: spec.MIN_CPU_SHARES,
    }


def share_bound(shares: int, *, unified: bool) -> dict[str, str]:
    """The file that gives a cgroup its cpu shares."""
    return {"cpu.weight": str(cpu_weight(shares))} if unified else {"cpu.shares": str(shares)}


def _requested_milli(pod: Pod) -> int:
    return sum(quantity.to_milli(qos.requests(c).get("cpu", 0)) for c in pod.spec.containers)


def cpu_weight(shares: int) -> int:
    """cpu.weight 1 to 10000 for shares 2 to 262144, as runtimes convert it."""
    return 1 + (shares - spec.MIN_CPU_SHARES) * 9999 // (spec.MAX_CPU_SHARES - spec.MIN_CPU_SHARES)
