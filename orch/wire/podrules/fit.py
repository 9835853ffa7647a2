"""Whether a pod fits on a node: checked by the agent before it runs, by the binder before; pure.

Rules are the reference's (K:pkg/scheduler/framework/plugins, component-helpers/scheduling). What a
pod says of its nodes is bounded: it is compared with every node.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import Tolerations
from orch.wire.podrules.resources import RESIZED, STANDARD
from orch.wire.records.core import Node, Taint
from orch.wire.records.placement import NodeSelectorRequirement, NodeSelectorTerm
from orch.wire.records.pods import Container, ContainerStatus, Pod, ResourceRequirements
from orch.wire.selectors import LabelRequirement, Operator

MAX_EXPRESSIONS = 100  # of a choice of nodes, and so many tens of their values
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - what a port without an address is taken on
_MAX_VALUES = 10 * MAX_EXPRESSIONS
MAX_AMOUNTS = 1000  # of resources, of all containers of a pod
_OPERATORS: Mapping[str, Operator] = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<",
}  # fmt: skip
_SINGLE = ("Gt", "Lt")


class HostPort(NamedTuple):
    """A port of the host that a pod takes."""

    protocol: str
    address: str
    number: int


def host_ports(pod: Pod) -> list[HostPort]:
    found = []
    for container in pod.spec.containers:
        for port in container.ports or ():
            number = port.containerPort if pod.spec.hostNetwork else port.hostPort
            if number:
                address = port.hostIP or ANY_ADDRESS
                found.append(HostPort(port.protocol or "TCP", address, number))
    return found


def used_port(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> HostPort | None:
    """The first that cannot be had, because of what is taken."""
    held: dict[tuple[str, int], set[str]] = {}
    for port in taken:
        held.setdefault((port.protocol, port.number), set()).add(port.address)
    for port in wanted:
        addresses = held.get((port.protocol, port.number))
        if addresses and (port.address == ANY_ADDRESS or addresses & {port.address, ANY_ADDRESS}):
            return port
    return None


def amounts(pod: Pod) -> dict[str, int]:
    """What must be free for the pod of every resource that its containers, the pod as a whole or
    its overhead ask for, in thousandths; of a pod that is being resized the larger amounts. With
    over MAX_AMOUNTS only cpu, memory and ephemeral-storage are added up.
    """
    asked, granted = _requested(pod), _as_granted(pod)
    if granted is pod:
        return asked
    return {name: max(asked.get(name, 0), held) for name, held in _requested(granted).items()}


def has_many_amounts(pod: Pod) -> bool:
    """Whether it asks for so much that adding it up would take long; counts and reads nothing."""
    given = (one.resources for one in podspec.lasting(pod) if one.resources)
    sizes = (len(one.requests or ()) + len(one.limits or ()) for one in given)
    return sum(sizes) + len(pod.spec.overhead or ()) > MAX_AMOUNTS


def _requested(pod: Pod) -> dict[str, int]:
    """As `podspec.requested`, for all names at once."""
    names = STANDARD if has_many_amounts(pod) else None

    def read(given: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        return ((k, quantity.to_milli(v)) for k, v in given.items() if names is None or k in names)

    lasting, largest = Counter[str](), Counter[str]()
    for container in pod.spec.initContainers or ():
        for name, amount in read(podspec.requests(container)):
            if podspec.is_sidecar(container):
                lasting[name] += amount
            else:
                largest[name] = max(largest[name], lasting[name] + amount)
    for container in pod.spec.containers:
        for name, amount in read(podspec.requests(container)):
            lasting[name] += amount
    wanted = dict(lasting | largest)  # of each the larger
    wanted.update(read(podspec.pod_level(pod, "requests")))
    for name, amount in read(pod.spec.overhead or {}):
        wanted[name] = wanted.get(name, 0) + amount
    return {name: amount for name, amount in wanted.items() if amount}


def _as_granted(pod: Pod) -> Pod:
    """The pod with what its node says it has granted; the very same where that is no more."""
    statuses = {s.name: s for s in podspec.container_statuses(pod.status)}
    changed: dict[str, Any] = {}
    for name in podspec.LASTING:
        listed = getattr(pod.spec, name) or ()
        sized = [_sized(each, statuses.get(each.name)) for each in listed]
        if any(new is not old for new, old in zip(sized, listed, strict=True)):
            changed[name] = sized
    whole = podspec.pod_level(pod, "requests")
    if whole and (more := _more(pod.status.allocatedResources, whole)):
        changed["resources"] = ResourceRequirements(requests={**whole, **more})
    return pod.model_copy(update={"spec": pod.spec.model_copy(update=changed)}) if changed else pod


def _sized(container: Container, status: ContainerStatus | None) -> Container:
    asked = podspec.requests(container)
    more = _more(status.allocatedResources, asked) if status else {}
    if not more:
        return container
    resources = ResourceRequirements(requests={**asked, **more})
    return container.model_copy(update={"resources": resources})


def _more(granted: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The amounts that are granted beyond what is asked for; one that is none is none."""
    found = {}
    for name in RESIZED:
        amount = (granted or {}).get(name)
        if amount is None or amount == asked.get(name):
            continue
        with contextlib.suppress(ValueError):
            if quantity.to_milli(amount) > quantity.to_milli(asked.get(name, 0)):
                found[name] = amount
    return found


def untolerated(tolerations: Tolerations, node: Node, *effects: str) -> Taint | None:
    """The node's first taint of such an effect that is not tolerated."""
    taints = (taint for taint in node.spec.taints or () if taint.effect in effects)
    return next((taint for taint in taints if not tolerations.of(taint)), None)


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes that a pod may run on, by selector and required affinity.

    `is_too_large`: with over MAX_EXPRESSIONS it matches no node.
    """

    selector: Mapping[str, str]
    terms: Sequence[NodeSelectorTerm] | None = None  # one must hold; None without an affinity
    is_too_large: bool = False

    def matches(self, node: Node) -> bool:
        labels = node.metadata.labels or {}
        wanted = self.selector.items()
        if self.is_too_large or (wanted and any(labels.get(k) != v for k, v in wanted)):
            return False
        return self.terms is None or any(_holds(term, node) for term in self.terms)


def node_choice(pod: Pod) -> NodeChoice:
    """The choice that a pod's spec makes."""
    selector = pod.spec.nodeSelector or {}
    own = pod.spec.affinity and pod.spec.affinity.nodeAffinity
    required = own and own.requiredDuringSchedulingIgnoredDuringExecution
    terms = required.nodeSelectorTerms if required else None
    if _is_too_large(selector, terms or ()):
        return NodeChoice({}, None, is_too_large=True)
    return NodeChoice(selector, terms)


def given(pod: Pod, name: str) -> Any:
    """A field of the spec that has no record, as JSON; None when it is not set."""
    return (pod.spec.model_extra or {}).get(name)


def _is_too_large(selector: Mapping[str, str], terms: Sequence[NodeSelectorTerm]) -> bool:
    """Counts before it looks at anything."""
    count, values = len(selector) + len(terms), 0
    for term in terms if count <= MAX_EXPRESSIONS else ():
        for expressions in (term.matchExpressions or (), term.matchFields or ()):
            count += len(expressions)
            if count > MAX_EXPRESSIONS:
                return True
            values += sum(len(expression.values or ()) for expression in expressions)
    return count > MAX_EXPRESSIONS or values > _MAX_VALUES


def _holds(term: NodeSelectorTerm, node: Node) -> bool:
    """All of a term must hold of a node; a term without any expression holds of none."""
    labels, fields = term.matchExpressions or (), term.matchFields or ()
    own, named = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
    return bool(labels or fields) and all(
        (*(_is_met(one, own) for one in labels), *(_is_met(one, named) for one in fields))
    )


def _is_met(expression: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    """False for one that cannot hold."""
    name, texts = expression.operator, frozenset(expression.values or ())
    if name not in _OPERATORS or (name in _SINGLE and len(texts) != 1):
        return False
    return LabelRequirement(expression.key, _OPERATORS[name], texts).matches(values)
