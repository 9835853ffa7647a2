"""The resources that a status shows: granted, and as the runtime has them; pure.

Rules as in the reference agent's (convertContainerStatusResources): kernels round amounts, so one
that is below what they can tell apart, or equal in other words, is shown as it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.pods.resize.sizes import InForce, Size, pod_size
from nodeagent.runtime.base import ContainerDetail, ContainerState, LinuxResources
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Container, Pod, ResourceRequirements

_LEAST_REQUEST_MILLI = 2  # less has the same shares
_LEAST_LIMIT_MILLI = 10  # less has the same quota
_SHARES = 1024  # of one cpu


def in_container(
    container: Container, detail: ContainerDetail, in_force: InForce
) -> ResourceRequirements:
    """Of a container that does not run: what it starts with."""
    granted = container.resources or ResourceRequirements()
    size = in_force.containers.get(detail.container.id)
    if detail.container.state is not ContainerState.RUNNING or size is None:
        return granted
    told = _told(detail.resources, size)
    limits = {"cpu": told.cpu_limit_milli, "memory": told.memory_limit_bytes}
    requests = {"cpu": told.cpu_request_milli, "memory": told.memory_request_bytes}
    changed = {
        "limits": _shown(granted.limits, limits, _LEAST_LIMIT_MILLI),
        "requests": _shown(granted.requests, requests, _LEAST_REQUEST_MILLI),
    }
    return granted.model_copy(update=changed)


def _told(resources: LinuxResources | None, size: Size) -> Size:
    """What the runtime says; memory requests are known to the agent alone."""
    if resources is None:
        return size
    shares, quota = resources.cpu_shares or 0, resources.cpu_quota_usec or 0
    return Size(
        cpu_request_milli=-(-shares * 1000 // _SHARES),
        cpu_limit_milli=quota * 1000 // (resources.cpu_period_usec or 100_000),
        memory_request_bytes=size.memory_request_bytes,
        memory_limit_bytes=resources.memory_limit_bytes or 0,
    )


def _shown(
    granted: Mapping[str, Any] | None, told: Mapping[str, int], least_milli: int
) -> dict[str, Any] | None:
    if granted is None:
        return None
    shown = dict(granted)
    cpu, memory = granted.get("cpu", 0), granted.get("memory", 0)
    wanted_milli = quantity.to_milli(cpu)
    if told["cpu"] != wanted_milli and max(told["cpu"], wanted_milli) > least_milli and told["cpu"]:
        shown["cpu"] = quantity.format_milli(told["cpu"])
    if told["memory"] and told["memory"] != quantity.to_bytes(memory):
        shown["memory"] = quantity.format_bytes(told["memory"])
    return shown


def granted_to_pod(pod: Pod) -> dict[str, Any] | None:
    """The requests of a pod that has some as a whole; else None: `kubectl edit` of releases before
    1.35 takes no pod that shows them.
    """
    return _amounts(pod_size(pod))[0] or None if pod.spec.resources else None


def of_pod(pod: Pod, in_force: InForce) -> ResourceRequirements | None:
    """What is in force of such a pod; None of others."""
    requests, limits = _amounts(in_force.whole or pod_size(pod))
    if pod.spec.resources is None or not (requests or limits):
        return None
    return ResourceRequirements(requests=requests or None, limits=limits or None)


def granted_to_container(container: Container) -> dict[str, Any] | None:
    return dict(podspec.requests(container)) or None


def _amounts(size: Size) -> tuple[dict[str, Any], dict[str, Any]]:
    listed = (
        (size.cpu_request_milli, size.memory_request_bytes),
        (size.cpu_limit_milli, size.memory_limit_bytes),
    )
    found = []
    for cpu_milli, memory_bytes in listed:
        shown = {"cpu": quantity.format_milli(cpu_milli)} if cpu_milli else {}
        if memory_bytes:
            shown["memory"] = quantity.format_bytes(memory_bytes)
        found.append(shown)
    return found[0], found[1]
