"""Capacity and allocatable of the node, from machine facts, reservations and thresholds; pure.

Allocatable is capacity minus reservations and hard eviction thresholds, never below zero
(pkg/kubelet/cm/helpers.go, node_container_manager_linux.go). Amounts are integers: cpu in
thousandths, everything else in its own unit; only `as_texts` formats them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from nodeagent.node.rules.facts import DeviceFacts, NodeFacts
from nodeagent.node.rules.pressure import Threshold
from nodeagent.pods.devices.inventory import ResourceCount
from orch.wire import quantity
from orch.wire.podrules.resources import is_extended_name

CPU = "cpu"
MEMORY = "memory"
STORAGE = "ephemeral-storage"
PODS = "pods"
PID = "pid"
HUGEPAGES_PREFIX = "hugepages-"
REQUIRED = (CPU, MEMORY, PODS, STORAGE)  # a node without one of these is not ready
_RESOURCE_OF_SIGNAL = {"memory.available": MEMORY, "nodefs.available": STORAGE}


def parse_reserved(*reservations: Mapping[Any, str]) -> dict[str, int]:
    """The sum of several, as the configuration has validated them."""
    total: Counter[str] = Counter()
    for reservation in reservations:
        for resource, text in reservation.items():
            read = quantity.to_milli if resource == CPU else quantity.to_bytes
            total[resource] += read(text)
    return dict(total)


def capacity(facts: NodeFacts, *, max_pods: int, pods_per_core: int = 0) -> dict[str, int]:
    """A resource that could not be measured is absent."""
    machine = facts.machine
    found = {CPU: machine.cpu_count * 1000, MEMORY: machine.memory_bytes}
    found = {resource: amount for resource, amount in found.items() if amount > 0}
    if facts.usage.node_fs.capacity_bytes:
        found[STORAGE] = facts.usage.node_fs.capacity_bytes
    found[PODS] = min(machine.cpu_count * pods_per_core, max_pods) if pods_per_core else max_pods
    for page_bytes, total_bytes in machine.hugepages_bytes.items():
        found[HUGEPAGES_PREFIX + quantity.format_bytes(page_bytes)] = total_bytes
    return found


def allocatable(
    capacity: Mapping[str, int], reserved: Mapping[str, int], thresholds: tuple[Threshold, ...]
) -> dict[str, int]:
    """What ordinary pods may use of each resource of `capacity`."""
    held = eviction_reserve(capacity, thresholds)
    left = {
        resource: max(0, amount - reserved.get(resource, 0) - held.get(resource, 0))
        for resource, amount in capacity.items()
    }
    pages = sum(amount for name, amount in capacity.items() if name.startswith(HUGEPAGES_PREFIX))
    if MEMORY in left:
        left[MEMORY] = max(0, left[MEMORY] - pages)
    return left


def eviction_reserve(
    capacity: Mapping[str, int], thresholds: tuple[Threshold, ...]
) -> dict[str, int]:
    """The amounts that hard thresholds keep free."""
    held: dict[str, int] = {}
    for threshold in thresholds:
        resource = _RESOURCE_OF_SIGNAL.get(threshold.signal, "")
        if resource in capacity and threshold.grace_s == 0:
            held[resource] = threshold.value.of(capacity[resource])
    return held


def reservation_problems(capacity: Mapping[str, int], reserved: Mapping[str, int]) -> list[str]:
    """One sentence per reservation that is larger than the machine."""
    return [
        f"the reservation of {as_text(resource, amount)} {resource} is more than the node has "
        f"({as_text(resource, capacity[resource])}); lower systemReserved or nodeagentReserved"
        for resource, amount in reserved.items()
        if resource in capacity and amount > capacity[resource]
    ]


def extended(
    devices: DeviceFacts, existing: Mapping[str, str] | None, count: Callable[[ResourceCount], int]
) -> dict[str, str]:
    """The extended resources: devices, and what others have written into the `existing` ones.

    Those whose plugin is gone for good are 0.
    """
    others = {} if devices.is_first and devices.counts is not None else existing or {}
    kept = {resource: amount for resource, amount in others.items() if is_extended_name(resource)}
    own = {resource: str(count(found)) for resource, found in (devices.counts or {}).items()}
    return {**kept, **dict.fromkeys(devices.gone, "0"), **own}


def missing_resources(capacity: Mapping[str, int]) -> list[str]:
    return [resource for resource in REQUIRED if resource not in capacity]


def as_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Quantities as the wire writes them."""
    return {resource: as_text(resource, amount) for resource, amount in amounts.items()}


def as_text(resource: str, amount: int) -> str:
    if resource == CPU:
        return quantity.format_milli(amount)
    return str(amount) if resource in (PODS, PID) else quantity.format_bytes(amount)
