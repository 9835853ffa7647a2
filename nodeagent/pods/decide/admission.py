"""Whether this node can take one more pod, and who ends so that it can take a critical one; pure.

The checks and texts are the reference agent's (lifecycle/predicate.go). They repeat checks of the
scheduler, since static pods bypass it and its view may be stale. For a critical pod end (as in
pkg/kubelet/preemption) pods that are not critical, or of a lower priority; as few as possible of
the best class of service, then of the next; of those that do equally well, the smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeagent.pods.decide.phase import EVICTED, Ending
from nodeagent.pods.resize.judging import shortage
from nodeagent.pods.spec import isolation, spec
from nodeagent.pods.spec.env import SpecError
from orch.wire import names, quantity
from orch.wire.podrules import fit, podspec
from orch.wire.podrules.podspec import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    NO_EXECUTE,
    NO_SCHEDULE,
    requested,
    tolerates,
)
from orch.wire.podrules.resources import HUGE_PAGES, is_extended_name
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod

_COUNTED = ("cpu", "memory", "ephemeral-storage")
_PODS = "pods"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")

Amounts = Mapping[str, int]  # by resource, in thousandths


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` becomes the pod's, as `kubectl get pods` shows it."""

    reason: str
    message: str


def none_given(_resource: str) -> bool:
    return False


def unassigned(problem: str) -> Refusal:
    """The refusal of a pod whose devices cannot be given."""
    return Refusal("UnexpectedAdmissionError", f"Pod was rejected: {problem}")


def refusal(
    pod: Pod,
    node: Node,
    others: Iterable[Pod],
    *,
    unsafe_sysctls: Collection[str] = (),
    given_here: Callable[[str], bool] = none_given,
    apparmor: bool = True,
) -> Refusal | None:
    """Why `pod` cannot run beside `others` on `node`; None when it can.

    Resources that are `given_here`, as devices, are not counted: who has been given some fits.
    `apparmor`: whether this host has it enabled.
    """
    listed = list(others)
    found = (
        _pressure_problem(pod, node)
        or _pods_problem(node, listed)
        or _amount_problem(pod, node, listed, given_here)
        or _port_problem(pod, listed)
        or _selector_problem(pod, node)
        or _taint_problem(pod, node)
        or _apparmor_problem(pod, enabled=apparmor)
        or _sysctl_problem(pod, node, unsafe_sysctls)
    )
    return found and Refusal(found.reason, f"Pod was rejected: {found.message}")


def _apparmor_problem(pod: Pod, *, enabled: bool) -> Refusal | None:
    annotations = pod.metadata.annotations or ()
    annotated = any(name.startswith(names.ANNOTATION_APPARMOR_PREFIX) for name in annotations)
    try:
        for container in podspec.all_containers(pod):
            if annotated or container.securityContext or pod.spec.securityContext:
                isolation.apparmor(pod, container, enabled=enabled)
    except SpecError as error:
        return Refusal("AppArmor", str(error))
    return None


def _sysctl_problem(pod: Pod, node: Node, unsafe: Collection[str]) -> Refusal | None:
    if not pod.spec.securityContext:
        return None
    info = node.status.nodeInfo
    problem = isolation.sysctl_problem(pod, info.kernelVersion if info else "", unsafe)
    return Refusal("SysctlForbidden", problem) if problem else None


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
    room = (node.status.allocatable or {}).get(_PODS)
    if room is None or len(others) < quantity.to_bytes(room):
        return None
    return _out_of(_PODS, 1, len(others), quantity.to_bytes(room))


def _amount_problem(
    pod: Pod, node: Node, others: list[Pod], given_here: Callable[[str], bool]
) -> Refusal | None:
    """A resource that the node does not offer is ignored, as the reference does."""
    offered = node.status.allocatable or {}
    others_offer = (name for name in offered if is_extended_name(name) and not given_here(name))
    pages = (name for name in offered if name.startswith(HUGE_PAGES))
    for resource in (*_COUNTED, *sorted((*pages, *others_offer))):
        wanted = requested(pod, resource)
        room = offered.get(resource)
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
        shortage(resource, wanted, used, room),
    )


def _port_problem(pod: Pod, others: list[Pod]) -> Refusal | None:
    if not any(container.ports for container in pod.spec.containers):
        return None
    taken = {port for other in others for port in fit.host_ports(other)}
    port = fit.used_port(fit.host_ports(pod), taken)
    if port is None:
        return None
    text = f"Predicate NodePorts failed: host port {port.number} is in use"
    return Refusal("NodePorts", text)


def _selector_problem(pod: Pod, node: Node) -> Refusal | None:
    chooses = pod.spec.nodeSelector or pod.spec.affinity
    if not chooses or fit.node_choice(pod).matches(node):
        return None
    return Refusal("NodeAffinity", "Predicate NodeAffinity failed")


def _taint_problem(pod: Pod, node: Node) -> Refusal | None:
    """Only what evicts counts, and static pods tolerate all of that."""
    if podspec.is_static(pod):
        return None
    taint = fit.untolerated(podspec.Tolerations(pod.spec.tolerations), node, NO_EXECUTE)
    if taint is None:
        return None
    shown = f"{taint.key}: {taint.value or ''}"
    return Refusal("TaintToleration", f"Predicate TaintToleration failed: taint {{{shown}}}")


def victims(pod: Pod, node: Node, others: Sequence[Pod]) -> list[Pod]:
    """The pods to end; none where none would do, or none is needed."""
    missing = _missing(pod, node, others)
    by_class: dict[str, list[Pod]] = {BEST_EFFORT: [], BURSTABLE: [], GUARANTEED: []}
    for other in others:
        if _yields(other, pod):
            by_class[podspec.qos_class(other)].append(other)
    least, middle, best = by_class[BEST_EFFORT], by_class[BURSTABLE], by_class[GUARANTEED]
    if _left(missing, (*least, *middle, *best)):
        return []
    ends = _chosen(best, _left(missing, (*least, *middle)))
    ends += _chosen(middle, _left(missing, (*least, *ends)))
    return ends + _chosen(least, _left(missing, ends))


def preempted(victim: Pod) -> Ending:
    """How it ends: with its own grace period."""
    text = "Preempted in order to admit critical pod"
    return Ending("Preempting", text, spec.grace_period_s(victim))


def _yields(other: Pod, pod: Pod) -> bool:
    if not podspec.is_critical(other):
        return True
    lower = (other.spec.priority, pod.spec.priority)
    return None not in lower and (other.spec.priority or 0) < (pod.spec.priority or 0)


def _missing(pod: Pod, node: Node, others: Iterable[Pod]) -> Amounts:
    """How much more must be free for the pod."""
    listed, found = list(others), dict[str, int]()
    for name in (_PODS, *_COUNTED):
        room = (node.status.allocatable or {}).get(name)
        wanted = _amount_of(pod, name)
        if wanted and room is not None:
            found[name] = wanted + sum(_amount_of(other, name) for other in listed)
            found[name] -= quantity.to_milli(room)
    return {name: amount for name, amount in found.items() if amount > 0}


def _amount_of(pod: Pod, resource: str) -> int:
    """What a pod takes of it, in thousandths."""
    return 1000 if resource == _PODS else requested(pod, resource)


def _left(missing: Amounts, ended: Iterable[Pod]) -> dict[str, int]:
    """What is still missing without these pods."""
    pods = list(ended)
    left = {
        name: amount - sum(_amount_of(each, name) for each in pods)
        for name, amount in missing.items()
    }
    return {name: amount for name, amount in left.items() if amount > 0}


def _chosen(pods: Iterable[Pod], missing: Amounts) -> list[Pod]:
    """Always the pod next that leaves the least missing."""
    left, candidates, chosen = dict(missing), list(pods), list[Pod]()
    while left and candidates:
        nearest = min(candidates, key=lambda each: _distance(each, left))
        candidates.remove(nearest)
        chosen.append(nearest)
        left = _left(left, (nearest,))
    return chosen


def _distance(pod: Pod, missing: Amounts) -> tuple[float, int, int]:
    """How much would be missing, each resource counting alike; then the pod's size."""
    amounts = {name: _amount_of(pod, name) for name in (*missing, "memory", "cpu")}
    shares = (max(0, amount - amounts[name]) / amount for name, amount in missing.items())
    return sum(share * share for share in shares), amounts["memory"], amounts["cpu"]
