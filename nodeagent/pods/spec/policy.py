"""How this node turns amounts of cpu and memory into settings of cgroups; pure.

Period and enforcement of cpu limits (`cpuCFSQuota`, `cpuCFSQuotaPeriod`), swap (`memorySwap`),
protection and throttling of memory (`MemoryQoS`), and whether the kernel kills a container as a
whole (`singleProcessOOMKill`). Formulas are the reference's (kuberuntime_container_linux.go,
helpers_linux.go). All but the first two need cgroup v2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import BEST_EFFORT, BURSTABLE, GUARANTEED
from orch.wire.podrules.resources import HUGE_PAGES
from orch.wire.records.pods import Container, Pod

MIN_CFS_QUOTA_USEC = 1_000  # the kernel takes no less
MAX_CFS_QUOTA_USEC = 2**44 - 1  # and no more, which no machine could use
_PAGE_BYTES = 4096
_PROTECTED = {GUARANTEED: "memory.min", BURSTABLE: "memory.low"}


@dataclass(frozen=True, slots=True)
class ResourcePolicy:
    """`unified`: this host has cgroup v2. The other fields follow the configuration.

    `swap_bytes` is the machine's swap that containers may share in (0: they swap nothing; None:
    the kernel cannot limit it). `throttling_factor` is None while MemoryQoS is off.
    """

    unified: bool = False
    cfs_quota: bool = True
    cfs_period_usec: int = 100_000
    swap_bytes: int | None = None
    throttling_factor: float | None = None
    protects_memory: bool = False
    kills_groups: bool = False

    def quota_usec(self, milli: int) -> int | None:
        """Of a limit of cpu; None for no limit: zero, or limits that are not enforced."""
        if not milli or not self.cfs_quota:
            return None
        quota_usec = milli * self.cfs_period_usec // 1000
        return min(max(quota_usec, MIN_CFS_QUOTA_USEC), MAX_CFS_QUOTA_USEC)


DEFAULT_POLICY = ResourcePolicy()


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Bytes of the machine, and of it what pods may have; 0 when not known.

    `huge_pages` are the resources of those that it has, such as `hugepages-2Mi`.
    """

    capacity_bytes: int = 0
    allocatable_bytes: int = 0
    huge_pages: frozenset[str] = frozenset()


def container_unified(
    pod: Pod, container: Container, policy: ResourcePolicy, memory: NodeMemory
) -> dict[str, str]:
    """File of cgroup v2 → value, of a container."""
    if not policy.unified:
        return {}
    files = {"memory.oom.group": "1"} if policy.kills_groups else {}
    if policy.swap_bytes is not None:
        files["memory.swap.max"] = str(_swap_bytes(pod, container, policy.swap_bytes, memory))
    if policy.throttling_factor is not None:
        files |= _protection(pod, _requested_bytes(container), policy)
        files |= _throttle(container, policy.throttling_factor, memory)
    return files


def hugepage_bytes(pod: Pod, container: Container, memory: NodeMemory) -> dict[str, int]:
    """Size of a page, as the kernel's files name it → the most that the container may have.

    Nothing of what the node has and neither the container nor the pod as a whole asks for.
    """
    limits = {**podspec.pod_level(pod, "limits"), **podspec.limits(container)}
    names = memory.huge_pages.union(name for name in limits if name.startswith(HUGE_PAGES))
    return {_page_size(name): quantity.to_bytes(limits.get(name, 0)) for name in sorted(names)}


def hugepage_bounds(pod: Pod, *, unified: bool) -> dict[str, str]:
    """File → value of the pod's cgroup, for the huge pages that it or its containers ask for."""
    asked = (podspec.pod_level(pod, "limits"), *map(podspec.limits, podspec.lasting(pod)))
    names = {name for limits in asked for name in limits if name.startswith(HUGE_PAGES)}
    file = "hugetlb.{}.max" if unified else "hugetlb.{}.limit_in_bytes"
    return {
        file.format(_page_size(name)): str(_hugepage_limit_bytes(pod, name))
        for name in sorted(names)
    }


def _hugepage_limit_bytes(pod: Pod, name: str) -> int:
    """The pod's own limit, else what its containers ask for: requests equal limits."""
    limit = podspec.limited(pod, name, quantity.to_bytes)
    return podspec.requested(pod, name, quantity.to_bytes) if limit is None else limit


_HUGE_MEDIUM = "HugePages"


def volume_page_bytes(pod: Pod, medium: str) -> int:
    """Of an emptyDir's memory: the size of the huge pages that the pod requests, 0 for no such
    medium (K:pkg/volume/emptydir). ValueError.
    """
    if medium in ("", "Memory"):
        return 0
    kind, _, size = medium.partition("-")
    if kind != _HUGE_MEDIUM or not (size or medium == _HUGE_MEDIUM):
        raise ValueError(f'emptyDir.medium {medium!r} is none of "", Memory, HugePages[-<size>]')
    asked = (podspec.pod_level(pod, "requests"), *map(podspec.requests, podspec.lasting(pod)))
    names = {name for amounts in asked for name in amounts if name.startswith(HUGE_PAGES)}
    found = {quantity.to_bytes(name.removeprefix(HUGE_PAGES)) for name in names}
    if size:
        found &= {quantity.to_bytes(size)}
    if len(found) > 1:
        raise ValueError(
            f"medium: {medium} can't be used if container requests multiple huge page sizes"
        )
    if not found:
        raise ValueError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for "
            "huge pages"
        )
    return found.pop()


def _page_size(name: str) -> str:
    """`2MB` for `hugepages-2Mi`."""
    size, units = quantity.to_bytes(name.removeprefix(HUGE_PAGES)), iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while size >= 1024 and unit != "GB":
        size, unit = size // 1024, next(units)
    return f"{size}{unit}"


def _requested_bytes(container: Container) -> int:
    return quantity.to_bytes(podspec.requests(container).get("memory", 0))


def _limit_bytes(container: Container) -> int:
    return quantity.to_bytes(podspec.limits(container).get("memory", 0))


def _swap_bytes(pod: Pod, container: Container, swap_bytes: int, memory: NodeMemory) -> int:
    """Burstable containers share in the swap as in the memory, by what they request."""
    requested = _requested_bytes(container)
    if not requested or requested == _limit_bytes(container) or not memory.capacity_bytes:
        return 0
    if podspec.qos_class(pod) != BURSTABLE or podspec.is_critical(pod):
        return 0
    return swap_bytes * requested // memory.capacity_bytes


def _protection(pod: Pod, requested: int, policy: ResourcePolicy) -> dict[str, str]:
    """What the kernel leaves to a container, for certain or as long as it can."""
    none = dict.fromkeys(_PROTECTED.values(), "0")
    if not policy.protects_memory or not requested:
        return none
    return {**none, _PROTECTED.get(podspec.qos_class(pod), _PROTECTED[BURSTABLE]): str(requested)}


def _throttle(container: Container, factor: float, memory: NodeMemory) -> dict[str, str]:
    """Above this much the kernel slows a container down, before it kills at the limit."""
    requested, limit = _requested_bytes(container), _limit_bytes(container)
    most = limit or memory.allocatable_bytes
    if requested == limit or not most:
        return {}
    high = int((requested + (most - requested) * factor) // _PAGE_BYTES) * _PAGE_BYTES
    return {"memory.high": str(high)} if high > requested else {}


def pod_unified(pod: Pod, policy: ResourcePolicy) -> dict[str, str]:
    """File of cgroup v2 → value, of a pod's own cgroup."""
    if not policy.unified or policy.throttling_factor is None:
        return {}
    if podspec.qos_class(pod) == BEST_EFFORT:
        return {}
    return _protection(pod, podspec.requested(pod, "memory", quantity.to_bytes), policy)


def class_unified(pods: Iterable[Pod], policy: ResourcePolicy) -> Mapping[str, dict[str, str]]:
    """Class of service → file of cgroup v2 → value; the cgroup of all pods is Guaranteed's.

    What a parent does not protect is protected in none of its children.
    """
    if not policy.unified or policy.throttling_factor is None:
        return {}
    sums = {GUARANTEED: 0, BURSTABLE: 0, BEST_EFFORT: 0}
    for pod in pods if policy.protects_memory else ():
        sums[podspec.qos_class(pod)] += podspec.requested(pod, "memory", quantity.to_bytes)
    burstable = sums[BURSTABLE]
    return {
        GUARANTEED: {"memory.min": str(sums[GUARANTEED] + burstable)},
        BURSTABLE: {"memory.low": str(burstable)},
    }
