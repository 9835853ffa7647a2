"""Where a pod fits, and why not elsewhere; pure.

The rules are those of the agents, in `orch/wire/podrules/fit`; texts are the reference's. Of the
nodes that fit the emptiest is taken, by the mean of cpu, memory and pods in use. What a pod asks
for beside other pods is not weighed, and such a pod is not placed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from orch.wire import names, quantity, raw
from orch.wire.podrules import fit
from orch.wire.podrules.fit import HostPort, NodeChoice, given
from orch.wire.podrules.podspec import (
    FINAL_PHASES,
    NO_EXECUTE,
    NO_SCHEDULE,
    is_critical,
    is_tolerated,
)
from orch.wire.podrules.resources import STANDARD
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod

OWN_SCHEDULER = "default-scheduler"
_PODS = "pods"
_WEIGHED = ("cpu", "memory", _PODS)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SHOWN_MAX = 30  # reasons: every taint of every node may be one

K = TypeVar("K")


class Cluster(NamedTuple):
    """Nodes and pods, by key."""

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]


class Demand(NamedTuple):
    """What a pod takes of its node, amounts in thousandths; itself is one of "pods"."""

    amounts: Mapping[str, int]
    ports: Sequence[HostPort] = ()


def demand(pod: Pod) -> Demand:
    return Demand({**fit.amounts(pod), _PODS: 1000}, fit.host_ports(pod))


class Use:
    """What pods have taken of a node; nothing else is mentioned."""

    def __init__(self) -> None:
        self.amounts = Counter[str]()
        self.ports = Counter[HostPort]()

    def take(self, wanted: Demand) -> None:
        self.amounts.update(wanted.amounts)
        self.ports.update(wanted.ports)

    def give_back(self, wanted: Demand) -> None:
        _subtract(self.amounts, wanted.amounts)
        _subtract(self.ports, Counter(wanted.ports))


def _subtract(counted: Counter[K], less: Mapping[K, int]) -> None:
    """At the cost of what is subtracted, not of all that is counted."""
    for key, amount in less.items():
        counted[key] -= amount
        if not counted[key]:
            del counted[key]


@dataclass(frozen=True, slots=True)
class Room:
    """A node and what is in use of it."""

    node: Node
    in_use: Use
    closed_to: Collection[str] = ()  # namespaces, as the API server said

    def size(self, resource: str) -> int | None:
        """How much there is, in thousandths; None if it is not reported, or is no amount."""
        try:
            return quantity.to_milli((self.node.status.allocatable or {})[resource])
        except (KeyError, ValueError):
            return None

    def fullness(self, wanted: Demand) -> tuple[float, str]:
        """How full it is with one more pod, from 0 to 1; equal ones are in order of their names."""
        share = 0.0
        for resource in _WEIGHED:
            used = self.in_use.amounts[resource] + wanted.amounts.get(resource, 0)
            share += used / (self.size(resource) or used or 1)
        return share / len(_WEIGHED), self.node.metadata.name


def place(pod: Pod, wanted: Demand, rooms: Collection[Room]) -> Room | str:
    """The emptiest room in which the pod fits, or why there is none."""
    choice = fit.node_choice(pod)
    if problem := unweighed(pod, choice):
        return problem
    best: tuple[tuple[float, str], Room] | None = None
    counted = Counter[str]()
    for room in rooms:
        if reasons := refusals(pod, wanted, choice, room):
            counted.update(reasons)
        elif best is None or room.fullness(wanted) < best[0]:
            best = room.fullness(wanted), room
    return best[1] if best else explanation(counted, len(rooms))


_CORDON = Taint(key=names.TAINT_UNSCHEDULABLE, effect=NO_SCHEDULE)


def refusals(pod: Pod, wanted: Demand, choice: NodeChoice, room: Room) -> Sequence[str]:
    """Why the pod does not fit; nothing when it does."""
    if room.node.spec.unschedulable and not is_tolerated(_CORDON, pod.spec.tolerations):
        return ("node(s) were unschedulable",)
    if taint := fit.untolerated(pod, room.node, NO_SCHEDULE, NO_EXECUTE):
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}",)
    if not choice.matches(room.node):
        return ("node(s) didn't match Pod's node affinity/selector",)
    if wanted.ports and fit.used_port(wanted.ports, room.in_use.ports):
        return ("node(s) didn't have free ports for the requested pod ports",)
    if pod.metadata.namespace in room.closed_to and not is_critical(pod):
        return ("node(s) had no memory for more pods of the namespace (--max-node-mib)",)
    return [*_lacking(wanted, room)]


def _lacking(wanted: Demand, room: Room) -> Iterator[str]:
    for resource, amount in wanted.amounts.items():
        whole = room.size(resource)
        if whole is None and resource in STANDARD and room.node.status.allocatable:
            continue  # not lacking where a node does not report it
        if room.in_use.amounts[resource] + amount > (whole or 0):
            yield "Too many pods" if resource == _PODS else f"Insufficient {resource}"


def explanation(counted: Mapping[str, int], nodes: int) -> str:
    """The reasons with the number of their nodes, in the reference's words."""
    if not nodes:
        return "no nodes available to schedule pods"
    shown = sorted(f"{count} {reason}" for reason, count in counted.items())
    more = f", and {len(shown) - _SHOWN_MAX} other reasons" if len(shown) > _SHOWN_MAX else ""
    return f"0/{nodes} nodes are available: {', '.join(shown[:_SHOWN_MAX])}{more}."


def is_own(pod: Pod) -> bool:
    """Whether the pod waits for a node, and for nobody else to choose one."""
    scheduler = given(pod, "schedulerName") or OWN_SCHEDULER
    over = pod.metadata.deletionTimestamp or pod.status.phase in FINAL_PHASES
    waits = not (over or pod.spec.nodeName or given(pod, "schedulingGates"))
    return waits and scheduler == OWN_SCHEDULER


def unweighed(pod: Pod, choice: NodeChoice) -> str:
    """What the pod asks for that is not weighed here, and what to do; "" for nothing."""
    if choice.is_too_large:
        return (
            "spec.affinity.nodeAffinity and spec.nodeSelector have over"
            f" {fit.MAX_EXPRESSIONS} expressions: choose nodes by fewer"
        )
    if fit.has_many_amounts(pod):
        return f"spec.containers ask for over {fit.MAX_AMOUNTS} amounts of resources: ask for fewer"
    path = next(_beside_others(pod), "")
    return path and (
        f"{path} is not weighed here: set spec.nodeName, or let another scheduler choose"
    )


def _beside_others(pod: Pod) -> Iterator[str]:
    """The paths of what must hold of the pod together with others."""
    others = pod.spec.affinity.model_extra if pod.spec.affinity else None
    for name in ("podAffinity", "podAntiAffinity"):
        if raw.value(others, name, _REQUIRED):
            yield f"spec.affinity.{name}.{_REQUIRED}"
    constraints = raw.records(pod.spec.model_extra, "topologySpreadConstraints")
    if any(one.get("whenUnsatisfiable") == "DoNotSchedule" for one in constraints):
        yield "spec.topologySpreadConstraints"
    if given(pod, "resourceClaims"):
        yield "spec.resourceClaims"
