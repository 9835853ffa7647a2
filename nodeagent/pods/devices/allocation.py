"""Which container has which devices, which are free for another, and what they add to it; pure.

Order and texts are the reference agent's (cm/devicemanager/manager.go): a container keeps what it
was given; devices of init containers are used again by those that start after them, except those
of sidecars, which keep running; the rest comes from the free healthy ones, as the plugin prefers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.runtime.base import ContainerSpec, HostDevice, Mount
from orch.wire import names, quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import is_sidecar
from orch.wire.records.pods import Container, Pod

MAX_OF_POD = 16_384  # devices of all its containers, each time one of them has it
_NOTE_MAX = 8 * 1024 * 1024


class DeviceError(Exception):
    """Devices cannot be given; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a plugin adds to a container that has its devices."""

    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """`numa_nodes` by device id; `grant` is None where only the ids are known."""

    numa_nodes: Mapping[str, tuple[int, ...]]
    grant: Grant | None = None

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.numa_nodes)


Allocations = Mapping[str, Allocation]  # by resource


class Book:
    """Allocations by uid of the pod, container and resource."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, dict[str, Allocation]]] = {}
        self._holders: dict[str, dict[str, str]] = {}  # of resources that were asked for

    def add(self, uid: str, container: str, resource: str, allocation: Allocation) -> None:
        self._held.setdefault(uid, {}).setdefault(container, {})[resource] = allocation
        if resource in self._holders:
            self._holders[resource].update(dict.fromkeys(allocation.numa_nodes, uid))

    def of(self, uid: str, container: str) -> Allocations:
        return self._held.get(uid, {}).get(container, {})

    def containers(self, uid: str) -> Collection[str]:
        return self._held.get(uid, {}).keys()

    def all(self) -> Iterator[tuple[str, str, str, Allocation]]:
        """Uid, container, resource and allocation."""
        for uid, containers in self._held.items():
            for container, allocations in containers.items():
                for resource, allocation in allocations.items():
                    yield uid, container, resource, allocation

    def count(self, uid: str) -> int:
        """How many devices a pod's containers have; what several have is counted for each."""
        containers = self._held.get(uid, {}).values()
        return sum(len(held.numa_nodes) for each in containers for held in each.values())

    def holders(self, resource: str) -> Mapping[str, str]:
        """The uid of the pod that has a device, by the device's id."""
        if resource not in self._holders:
            rows = ((uid, held) for uid, _, name, held in self.all() if name == resource)
            self._holders[resource] = {one: uid for uid, held in rows for one in held.numa_nodes}
        return self._holders[resource]

    def has(self, resource: str) -> bool:
        return any(name == resource for _, _, name, _ in self.all())

    def retain(self, uids: Collection[str]) -> bool:
        """Free the devices of all other pods; whether there were any."""
        gone = self._held.keys() - set(uids)
        for uid in gone:
            del self._held[uid]
        if gone:
            self._holders.clear()
        return bool(gone)


def amounts(container: Container) -> dict[str, int]:
    """How many of each extended resource a container is limited to, which is what it requests."""
    given = podspec.limits(container).items()
    return {name: count for name, text in given if "/" in name and (count := _count(text))}


def _count(amount: object) -> int:
    return quantity.to_bytes(amount)  # type: ignore[arg-type]


def reusable(pod: Pod, name: str, resource: str, book: Book) -> frozenset[str]:
    """Devices of the init containers before the container `name` that nothing else uses by then."""
    uid, free = pod.metadata.uid or "", frozenset[str]()
    inits = {c.name for c in pod.spec.initContainers or () if not is_sidecar(c)}
    for container in podspec.lasting(pod):
        if container.name == name:
            break
        held = book.of(uid, container.name).get(resource)
        if held is not None:
            free = free | held.ids if container.name in inits else free - held.ids
    return free


@dataclass(frozen=True, slots=True)
class Choice:
    """`taken` are certain, `missing` more are to come from the sorted `free`."""

    taken: tuple[str, ...]
    free: tuple[str, ...]
    missing: int


def choose(
    resource: str,
    wanted: int,
    healthy: Collection[str],
    used: Collection[str],
    again: Collection[str],
) -> Choice:
    """`used` are in use by others, `again` may be used again. DeviceError: there are too few."""
    taken = tuple(sorted(set(again) & set(healthy)))[:wanted]
    missing = wanted - len(taken)
    free = tuple(sorted(set(healthy) - set(used) - set(taken)))
    if missing > len(free):
        raise DeviceError(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {missing}, Available: {len(free)}"
        )
    return Choice(taken, free, missing)


def complete(choice: Choice, preferred: Sequence[str]) -> tuple[str, ...]:
    """All devices to give: what the plugin prefers first, as far as it is free."""
    if not choice.missing:
        return choice.taken
    free = set(choice.free)
    ordered = dict.fromkeys((*(one for one in preferred if one in free), *choice.free))
    return (*choice.taken, *tuple(ordered)[: choice.missing])


def require_unchanged(pod: Pod, name: str, resource: str, held: Allocation, wanted: int) -> None:
    """DeviceError when a container asks for another number than it was given."""
    if len(held.ids) != wanted:
        raise DeviceError(
            f'pod "{pod.metadata.uid}" container "{name}" changed request for resource '
            f'"{resource}" from {len(held.ids)} to {wanted}'
        )


def require_few(count: int) -> None:
    """DeviceError when a pod's containers would have so many devices that looking through them, and
    writing them down, takes long. Init containers may use the same ones a thousand times.
    """
    if count > MAX_OF_POD:
        raise DeviceError(
            f"the containers of a pod may have {MAX_OF_POD} devices, those that several of them "
            f"use counted for each, and these would have {count} or more; ask for fewer"
        )


def require_healthy(
    resource: str, healthy: Collection[str] | None, held: Collection[str]
) -> Collection[str]:
    """The healthy devices; None means that no plugin offers any. DeviceError."""
    if healthy is None:
        raise DeviceError(f"cannot allocate unregistered device {resource}")
    if not healthy:
        raise DeviceError(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )
    if not set(held) <= set(healthy):
        raise DeviceError(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    return healthy


def combined(allocations: Allocations) -> Grant:
    """The grants of all resources; of what two of them set, the first by name counts."""
    grants = [held.grant for _, held in sorted(allocations.items()) if held.grant]
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, HostDevice] = {}
    for grant in grants:
        env = {**dict(grant.env), **env}
        annotations = {**grant.annotations, **annotations}
        mounts = {**{m.container_path: m for m in grant.mounts}, **mounts}
        devices = {**{d.container_path: d for d in grant.devices}, **devices}
    return Grant(
        env=tuple(env.items()),
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations=annotations,
        cdi_devices=tuple(dict.fromkeys(name for grant in grants for name in grant.cdi_devices)),
    )


def with_devices(wanted: ContainerSpec, allocations: Allocations) -> ContainerSpec:
    """The container with its devices; its own variables, mounts and annotations win."""
    if not allocations:
        return wanted
    grant = combined(allocations)
    variables = {name for name, _ in wanted.env}
    paths = {mount.container_path for mount in wanted.mounts}
    noted = {names.RUNTIME_ANNOTATION_DEVICES: note(allocations)}
    return replace(
        wanted,
        env=(*(item for item in grant.env if item[0] not in variables), *wanted.env),
        mounts=(*(m for m in grant.mounts if m.container_path not in paths), *wanted.mounts),
        devices=grant.devices,
        cdi_devices=grant.cdi_devices,
        annotations={**grant.annotations, **wanted.annotations, **noted},
    )


def note(allocations: Allocations) -> str:
    """The ids by resource, for an annotation at the runtime that outlives every file."""
    return json.dumps({resource: sorted(held.ids) for resource, held in allocations.items()})


def noted(text: str) -> dict[str, Allocation]:
    """What `note` wrote; nothing for any other text."""
    if not text or len(text) > _NOTE_MAX:
        return {}
    try:
        found = json.loads(text)
        return {
            str(resource): Allocation({str(one): () for one in ids})
            for resource, ids in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
