"""Where a pod fits, and why not elsewhere; pure.

The rules are those of the agents, in `orch/wire/podrules/fit`; texts are the reference's. Of the
nodes that fit the emptiest is taken, by the mean of cpu, memory and pods in use. What a pod asks
for beside other pods is not weighed, and such a pod is not placed at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orch.wire import names, quantity, raw
from orch.wire.podrules import fit
from orch.wire.podrules.fit import HostPort, NodeChoice, given
from orch.wire.podrules.podspec import NO_EXECUTE, NO_SCHEDULE, is_critical, is_tolerated
from orch.wire.podrules.resources import STANDARD
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod

OWN_SCHEDULER = "default-scheduler"
_WEIGHED = ("cpu", "memory")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SHOWN_MAX = 30  # reasons: every taint of every node may be one


class Cluster(NamedTuple):
    """Nodes and pods, by key."""

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod takes of its node, in thousandths."""

    amounts: Mapping[str, int]
    ports: Sequence[HostPort] = ()


def demand(pod: Pod) -> Demand:
    return Demand(fit.amounts(pod), tuple(fit.host_ports(pod)))


@dataclass(slots=True)
class Room:
    """A node and what is in use of it. `sizes` are those of its amounts that were read already:
    a node may report thousands of which nobody asks.
    """

    node: Node
    sizes: dict[str, int | None] = field(default_factory=dict)  # thousandths; None: not readable
    used: dict[str, int] = field(default_factory=dict)
    pods: int = 0
    ports: list[HostPort] = field(default_factory=list)
    closed_to: set[str] = field(default_factory=set)  # namespaces, as the API server said

    def size(self, resource: str) -> int | None:
        """How much there is; None if it is not reported, or is no amount."""
        text = (self.node.status.allocatable or {}).get(resource)
        if text is not None and resource not in self.sizes:
            try:
                self.sizes[resource] = quantity.to_milli(text)
            except ValueError:
                self.sizes[resource] = None
        return self.sizes.get(resource)

    def take(self, wanted: Demand) -> None:
        self.pods += 1
        self.ports += wanted.ports
        for resource, amount in wanted.amounts.items():
            self.used[resource] = self.used.get(resource, 0) + amount

    def use(self, wanted: Demand) -> tuple[float, str]:
        """How full it is with one more pod, from 0 to 1; equal ones are in order of their names."""
        shares = [(self.pods + 1) * 1000 / (self.size("pods") or 1)]
        for resource in _WEIGHED:
            used = self.used.get(resource, 0) + wanted.amounts.get(resource, 0)
            shares.append(used / (self.size(resource) or used or 1))
        return sum(shares) / len(shares), self.node.metadata.name


_CORDON = Taint(key=names.TAINT_UNSCHEDULABLE, effect=NO_SCHEDULE)


def refusals(pod: Pod, wanted: Demand, choice: NodeChoice, room: Room) -> Sequence[str]:
    """Why the pod does not fit; nothing when it does."""
    if room.node.spec.unschedulable and not is_tolerated(_CORDON, pod.spec.tolerations):
        return ("node(s) were unschedulable",)
    if taint := fit.untolerated(pod, room.node, NO_SCHEDULE, NO_EXECUTE):
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}",)
    if not choice.matches(room.node):
        return ("node(s) didn't match Pod's node affinity/selector",)
    if wanted.ports and fit.used_port(wanted.ports, room.ports):
        return ("node(s) didn't have free ports for the requested pod ports",)
    if pod.metadata.namespace in room.closed_to and not is_critical(pod):
        return ("node(s) had no memory for more pods of the namespace (--max-node-mib)",)
    return _lacking(wanted, room)


def _lacking(wanted: Demand, room: Room) -> Sequence[str]:
    lacking = []
    if (room.pods + 1) * 1000 > (room.size("pods") or 0):
        lacking.append("Too many pods")
    for resource, amount in wanted.amounts.items():
        whole = room.size(resource)
        if whole is None and resource in STANDARD and room.node.status.allocatable:
            continue  # not lacking where a node does not report it
        if room.used.get(resource, 0) + amount > (whole or 0):
            lacking.append(f"Insufficient {resource}")
    return lacking


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
    waits = not (pod.spec.nodeName or pod.metadata.deletionTimestamp)
    return waits and scheduler == OWN_SCHEDULER and not given(pod, "schedulingGates")


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
