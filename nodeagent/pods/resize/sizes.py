"""The cpu and memory of pods and containers, desired, allocated and in force; pure values.

Desired is what the spec says, allocated what this node has granted, in force what the runtime was
told. All of the agent sees pods with their allocated sizes (`allocated_pod`); only `allocations`
knows what is desired. A Size is written on each container that is created from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.resources import PARTS, RESIZED
from orch.wire.records.pods import Container, Pod, ResourceRequirements

_FIELDS = 4
_DIGITS = 32  # of a sum of 64-bit numbers in thousandths


@dataclass(frozen=True, slots=True)
class Size:
    """Of a container or a pod; 0 where nothing is asked for, or nothing limits it."""

    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_request_bytes: int = 0
    memory_limit_bytes: int = 0

    def text(self) -> str:
        return ",".join(map(str, astuple(self)))


def parse_size(text: str) -> Size | None:
    """What `Size.text` has written; None for anything else."""
    parts = text.split(",", _FIELDS)
    if len(parts) != _FIELDS or not all(
        part.isascii() and part.isdecimal() and len(part) <= _DIGITS for part in parts
    ):
        return None
    return Size(*map(int, parts))


def definition(digest: str, size: Size) -> str:
    """The hash of a container's definition and the size it is created with, in one annotation:
    runtimes that restore a container from a checkpoint refresh this one.
    """
    return f"{digest}/{size.text()}"


def container_size(pod: Pod, container: Container) -> Size:
    requests, limits = podspec.requests(container), podspec.effective_limits(pod, container)
    return Size(
        cpu_request_milli=quantity.to_milli(requests.get("cpu", 0)),
        cpu_limit_milli=quantity.to_milli(limits.get("cpu", 0)),
        memory_request_bytes=quantity.to_bytes(requests.get("memory", 0)),
        memory_limit_bytes=quantity.to_bytes(limits.get("memory", 0)),
    )


def pod_size(pod: Pod) -> Size:
    return Size(
        cpu_request_milli=podspec.requested(pod, "cpu"),
        cpu_limit_milli=podspec.limited(pod, "cpu") or 0,
        memory_request_bytes=podspec.requested(pod, "memory", quantity.to_bytes),
        memory_limit_bytes=podspec.limited(pod, "memory", quantity.to_bytes) or 0,
    )


@dataclass(frozen=True, slots=True)
class SizeGrant:
    """What a node has granted a pod: by container, and as a whole.

    `generation` is the pod's, when that was granted. `first` is what the containers had that an
    agent without resizing had started; empty for pods of this agent.
    """

    containers: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    whole: ResourceRequirements | None = None
    generation: int = 0
    first: Mapping[str, ResourceRequirements] = field(default_factory=dict)


def allocated_pod(pod: Pod, allocation: SizeGrant) -> Pod:
    """The pod with its allocated sizes; the very same where it desires no others."""
    if is_allocated(pod, allocation):
        return pod
    spec = pod.spec
    changed: dict[str, Any] = {"resources": granted_resources(spec.resources, allocation.whole)}
    for name in podspec.LASTING:
        if containers := getattr(spec, name):
            changed[name] = [_sized(container, allocation) for container in containers]
    return pod.model_copy(update={"spec": spec.model_copy(update=changed)})


def is_allocated(pod: Pod, allocation: SizeGrant) -> bool:
    """Whether the pod desires what it has; the same amounts in other words are the same."""
    return same_resources(pod.spec.resources, allocation.whole) and all(
        same_resources(container.resources, allocation.containers[container.name])
        for container in podspec.lasting(pod)
        if container.name in allocation.containers
    )


def _sized(container: Container, allocation: SizeGrant) -> Container:
    granted = allocation.containers.get(container.name)
    if granted is None or same_resources(container.resources, granted):
        return container
    return container.model_copy(
        update={"resources": granted_resources(container.resources, granted)}
    )


def granted_resources(
    desired: ResourceRequirements | None, granted: ResourceRequirements | None
) -> ResourceRequirements | None:
    """What was granted of cpu and memory, and the rest as it is desired."""
    if desired is None or granted is None:
        return granted
    changed = {}
    for part in PARTS:
        wanted, has = getattr(desired, part), getattr(granted, part)
        rest = {name: each for name, each in (wanted or {}).items() if name not in RESIZED}
        changed[part] = None if has is None and not rest else {**(has or {}), **rest}
    return desired.model_copy(update=changed)


def same_resources(left: ResourceRequirements | None, right: ResourceRequirements | None) -> bool:
    """Whether cpu and memory are the same."""
    if left is right or left == right:
        return True
    return all(
        _amounts(getattr(left, part, None)) == _amounts(getattr(right, part, None))
        for part in ("requests", "limits")
    )


def _amounts(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = given or {}
    return {name: quantity.parse_quantity(found[name]) for name in RESIZED if name in found}


@dataclass(frozen=True, slots=True)
class InForce:
    """What is in force of a pod: of its cgroup (None: not known), of its containers by id.

    `restarting` are ids of containers that a resize has stopped. `first`: see `SizeGrant`.
    """

    whole: Size | None = None
    containers: Mapping[str, Size] = field(default_factory=dict)
    restarting: frozenset[str] = frozenset()
    first: Mapping[str, ResourceRequirements] = field(default_factory=dict)


NOTHING_IN_FORCE = InForce()
