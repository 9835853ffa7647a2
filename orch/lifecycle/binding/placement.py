"""Where a pod fits, and why not elsewhere; pure.

The rules are those of the agents, in `orch/wire/podrules/fit`; texts are the reference's. Of the
nodes that fit the emptiest is taken, by the mean of cpu, memory and pods in use. What a pod asks
for beside other pods is not weighed, and such a pod is not placed at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from orch.wire import names, quantity, raw
from orch.wire.podrules import fit, podspec
from orch.wire.podrules.fit import HostPort, NodeChoice, given
from orch.wire.podrules.podspec import Tolerations
from orch.wire.podrules.resources import STANDARD
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod

OWN_SCHEDULER = "default-scheduler"
PODS = "pods"
_WEIGHED = ("cpu", "memory", PODS)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CORDON = Taint(key=names.TAINT_UNSCHEDULABLE, effect=podspec.NO_SCHEDULE)
_SHOWN_MAX = 30  # reasons: every taint of every node may be one

Demand = Mapping[str | HostPort, int]  # of resources in thousandths; a port counts as one


class Room(NamedTuple):
    """A node and what is in use of it."""

    node: Node
    in_use: Counter[str | HostPort]
    closed: Collection[tuple[str, str]] = ()  # nodes, each to a namespace, as the API server said

    def size(self, resource: str) -> float:
        """How much there is, in thousandths; of what every node has no end if it is not reported,
        or is no amount.
        """
        try:
            return quantity.to_milli((self.node.status.allocatable or {})[resource])
        except (KeyError, ValueError):
            return math.inf if resource in STANDARD else 0

    def fullness(self, wanted: Demand) -> tuple[float, str]:
        """How full it is with one more pod, from 0 to 1; equal ones are in order of their names."""
        share = 0.0
        for resource in _WEIGHED:
            used = self.in_use[resource] + wanted.get(resource, 0)
            share += used / (self.size(resource) or used or 1)
        return share / len(_WEIGHED), self.node.metadata.name


def demand(pod: Pod) -> Demand:
    """What a pod takes of its node; itself is one of "pods"."""
    taken: dict[str | HostPort, int] = dict.fromkeys(fit.host_ports(pod), 1)
    taken.update(fit.amounts(pod).items())
    return taken | {PODS: 1000}


class Wishes(NamedTuple):
    """What a pod asks of any node, read once for all of them."""

    namespace: str
    is_critical: bool
    choice: NodeChoice
    tolerations: Tolerations
    ports: Sequence[HostPort]
    amounts: Mapping[str, int]  # of resources, in thousandths

    @classmethod
    def of(cls, pod: Pod, wanted: Demand) -> Self:
        return cls(
            namespace=pod.metadata.namespace or "",
            is_critical=(pod.spec.priority or 0) >= names.CRITICAL_PRIORITY,  # as the API server
            choice=fit.node_choice(pod),
            tolerations=Tolerations(pod.spec.tolerations),
            ports=_ports(wanted),
            amounts={what: amount for what, amount in wanted.items() if isinstance(what, str)},
        )


def place(pod: Pod, wanted: Demand, rooms: Collection[Room]) -> Room | str:
    """The emptiest room in which the pod fits, or why there is none."""
    wishes = Wishes.of(pod, wanted)
    if wish := next(_unweighed(pod, wishes.choice), None):
        return f"{wish} is not weighed here: set spec.nodeName, or let another scheduler choose"
    reasons, fitting = Counter[str](), list[Room]()
    for room in rooms:
        if refused := refusals(wishes, room):
            reasons.update(refused)
        else:
            fitting.append(room)
    if fitting:
        return min(fitting, key=lambda room: room.fullness(wanted))
    return explanation(reasons, len(rooms))


def refusals(wishes: Wishes, room: Room) -> Sequence[str]:
    """Why the pod does not fit; nothing when it does."""
    node = room.node
    if node.spec.unschedulable and not wishes.tolerations.of(_CORDON):
        return ("node(s) were unschedulable",)
    effects = (podspec.NO_SCHEDULE, podspec.NO_EXECUTE)
    if taint := fit.untolerated(wishes.tolerations, node, *effects):
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}",)
    if not wishes.choice.matches(node):
        return ("node(s) didn't match Pod's node affinity/selector",)
    if wishes.ports and fit.used_port(wishes.ports, _ports(room.in_use)):
        return ("node(s) didn't have free ports for the requested pod ports",)
    if (node.metadata.name, wishes.namespace) in room.closed and not wishes.is_critical:
        return ("node(s) had no memory for more pods of the namespace (--max-node-mib)",)
    lacking = [
        name for name, amount in wishes.amounts.items()
        if room.in_use[name] + amount > room.size(name)
    ]  # fmt: skip
    return ["Too many pods" if name == PODS else f"Insufficient {name}" for name in lacking]


def _ports(taken: Iterable[str | HostPort]) -> list[HostPort]:
    return [one for one in taken if isinstance(one, HostPort)]


def explanation(counted: Mapping[str, int], nodes: int) -> str:
    """The reasons with the number of their nodes, in the reference's words."""
    if not nodes:
        return "no nodes available to schedule pods"
    shown = sorted(f"{count} {reason}" for reason, count in counted.items())
    more = f", and {len(shown) - _SHOWN_MAX} other reasons" if len(shown) > _SHOWN_MAX else ""
    return f"0/{nodes} nodes are available: {', '.join(shown[:_SHOWN_MAX])}{more}."


def is_own(pod: Pod) -> bool:
    """Whether the pod waits for a node, and for nobody else to choose one."""
    over = pod.metadata.deletionTimestamp or pod.status.phase in podspec.FINAL_PHASES
    is_held = over or pod.spec.nodeName or given(pod, "schedulingGates")
    return not is_held and (given(pod, "schedulerName") or OWN_SCHEDULER) == OWN_SCHEDULER


def _unweighed(pod: Pod, choice: NodeChoice) -> Iterator[str]:
    """What the pod asks for that is not weighed here, by its path."""
    if choice.is_too_large:
        where = "spec.affinity.nodeAffinity and spec.nodeSelector"
        yield f"a choice by over {fit.MAX_EXPRESSIONS} expressions in {where}"
    if fit.has_many_amounts(pod):
        yield f"a sum of over {fit.MAX_AMOUNTS} amounts of resources in spec.containers"
    others = pod.spec.affinity.model_extra if pod.spec.affinity else None
    for name in ("podAffinity", "podAntiAffinity"):
        if raw.value(others, name, _REQUIRED):
            yield f"spec.affinity.{name}.{_REQUIRED}"
    constraints = raw.records(pod.spec.model_extra, "topologySpreadConstraints")
    if any(one.get("whenUnsatisfiable") == "DoNotSchedule" for one in constraints):
        yield "spec.topologySpreadConstraints"
    if given(pod, "resourceClaims"):
        yield "spec.resourceClaims"
