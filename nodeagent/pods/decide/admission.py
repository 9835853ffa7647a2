"""Whether this node can take one more pod; pure.

The checks and texts are the reference agent's (lifecycle/predicate.go). They repeat checks of the
scheduler, since static pods bypass it and its view may be stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nodeagent.pods.decide.phase import EVICTED
from nodeagent.pods.spec import sysctls
from orch.wire import names, quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import NO_EXECUTE, NO_SCHEDULE, is_tolerated, requested, tolerates
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod

_COUNTED = ("cpu", "memory")
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` becomes the pod's, as `kubectl get pods` shows it."""

    reason: str
    message: str


def refusal(pod: Pod, node: Node, others: Iterable[Pod]) -> Refusal | None:
    """Why `pod` cannot run beside `others` on `node`; None when it can."""
    listed = list(others)
    found = (
        _pressure_problem(pod, node)
        or _pods_problem(node, listed)
        or _amount_problem(pod, node, listed)
        or _port_problem(pod, listed)
        or _selector_problem(pod, node)
        or _taint_problem(pod, node)
    )
    if found is None:
        info = node.status.nodeInfo
        problem = sysctls.sysctl_problem(pod, info.kernelVersion if info else "")
        found = Refusal("SysctlForbidden", problem) if problem else None
    return found and Refusal(found.reason, f"Pod was rejected: {found.message}")


def _pressure_problem(pod: Pod, node: Node) -> Refusal | None:
    """A node under pressure rejects pods that it would evict next."""
    if podspec.is_critical(pod):
        return None
    under = [c.type for c in node.status.conditions or () if c.status == "True"]
    pressures = [kind for kind in _PRESSURES if kind in under]
    if not pressures or (pressures == ["MemoryPressure"] and _asks_for_memory(pod)):
        return None
    return Refusal(EVICTED, f"The node had condition: [{', '.join(pressures)}].")


def _asks_for_memory(pod: Pod) -> bool:
    """Of a service class above BestEffort, or tolerates the pressure by its name."""
    pressure = Taint(key=names.TAINT_MEMORY_PRESSURE, effect=NO_SCHEDULE)
    tolerated = any(t.key and tolerates(t, pressure) for t in pod.spec.tolerations or ())
    return tolerated or podspec.qos_class(pod) != podspec.BEST_EFFORT


def _pods_problem(node: Node, others: list[Pod]) -> Refusal | None:
    room = (node.status.allocatable or {}).get("pods")
    if room is None or len(others) < quantity.to_bytes(room):
        return None
    return _out_of("pods", 1, len(others), quantity.to_bytes(room))


def _amount_problem(pod: Pod, node: Node, others: list[Pod]) -> Refusal | None:
    for resource in _COUNTED:
        wanted = requested(pod, resource)
        room = (node.status.allocatable or {}).get(resource)
        if not wanted or room is None:
            continue
        used = sum(requested(other, resource) for other in others)
        if used + wanted > quantity.to_milli(room):
            unit = 1 if resource == "cpu" else 1000
            amounts = wanted // unit, used // unit, quantity.to_milli(room) // unit
            return _out_of(resource, *amounts)
    return None


def _out_of(resource: str, wanted: int, used: int, room: int) -> Refusal:
    return Refusal(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, "
        f"capacity: {room}",
    )


def _port_problem(pod: Pod, others: list[Pod]) -> Refusal | None:
    taken = {port for other in others for port in _host_ports(other)}
    for protocol, address, port in _host_ports(pod):
        for used_protocol, used_address, used_port in taken:
            meets = "0.0.0.0" in (address, used_address) or address == used_address  # noqa: S104
            if meets and (protocol, port) == (used_protocol, used_port):
                return Refusal(
                    "NodePorts", f"Predicate NodePorts failed: host port {port} is in use"
                )
    return None


def _host_ports(pod: Pod) -> list[tuple[str, str, int]]:
    """Protocol, address and number of every port of the host that the pod takes."""
    found = []
    for container in pod.spec.containers:
        for port in container.ports or ():
            number = port.containerPort if pod.spec.hostNetwork else port.hostPort
            if number:
                found.append((port.protocol or "TCP", port.hostIP or "0.0.0.0", number))  # noqa: S104
    return found


def _selector_problem(pod: Pod, node: Node) -> Refusal | None:
    labels = node.metadata.labels or {}
    wanted = pod.spec.nodeSelector or {}
    if all(labels.get(key) == value for key, value in wanted.items()):
        return None
    return Refusal("NodeAffinity", "Predicate NodeAffinity failed")


def _taint_problem(pod: Pod, node: Node) -> Refusal | None:
    """Only what evicts counts, and static pods tolerate all of that."""
    if podspec.is_static(pod):
        return None
    for taint in node.spec.taints or ():
        if taint.effect == NO_EXECUTE and not is_tolerated(taint, pod.spec.tolerations):
            shown = f"{taint.key}: {taint.value or ''}"
            return Refusal(
                "TaintToleration", f"Predicate TaintToleration failed: taint {{{shown}}}"
            )
    return None
