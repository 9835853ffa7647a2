"""Where a pod fits, in tables; the texts are the reference scheduler's."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from orch.lifecycle.binding import placement
from orch.lifecycle.binding.placement import Room
from orch.wire import names
from orch.wire.podrules import fit
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

ALLOCATABLE = {"cpu": "2", "memory": "1Gi", "pods": "2"}


def node(name: str = "n1", allocatable: dict[str, str] | None = None, **spec: Any) -> Node:
    status = {"allocatable": ALLOCATABLE if allocatable is None else allocatable}
    return Node.from_wire({"metadata": {"name": name}, "spec": spec, "status": status})


def pod(name: str = "p", requests: dict[str, str] | None = None, **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": requests or {}}, **spec.pop("c", {})}]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return Pod.from_wire({"metadata": metadata, "spec": {"containers": containers, **spec}})


def refusals(one: Pod, room: Room) -> list[str]:
    return [*placement.refusals(placement.Wishes.of(one, placement.demand(one)), room)]


def room_with(*pods: Pod, on: Node | None = None) -> Room:
    in_use = Counter[str | fit.HostPort]()
    for one in pods:
        in_use.update(placement.demand(one))
    return Room(on or node(), in_use)


TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
PORT = {"c": {"ports": [{"containerPort": 80, "hostPort": 80}]}}


@pytest.mark.parametrize(
    ("one", "room", "why"),
    [
        (pod(), room_with(), []),
        (pod(requests={"cpu": "2", "memory": "1Gi"}), room_with(), []),
        (pod(requests={"cpu": "2001m"}), room_with(), ["Insufficient cpu"]),
        (pod(requests={"cpu": "1"}), room_with(pod(requests={"cpu": "1001m"})),
         ["Insufficient cpu"]),
        (pod(requests={"memory": "2Gi", "cpu": "3"}), room_with(),
         ["Insufficient memory", "Insufficient cpu"]),
        (pod(), room_with(pod("a"), pod("b")), ["Too many pods"]),
        (pod(requests={"orch.io/gpu": "1"}), room_with(), ["Insufficient orch.io/gpu"]),
        (pod(requests={"ephemeral-storage": "1Gi"}), room_with(), []),  # nodes may not report it
        (pod(), room_with(on=node(allocatable={})), ["Too many pods"]),
        (pod(requests={"cpu": "1"}), room_with(on=node(allocatable={"cpu": "x", "pods": "9"})), []),
        (pod(), room_with(on=node(unschedulable=True)), ["node(s) were unschedulable"]),
        (pod(tolerations=[{"key": "node.orch.io/unschedulable", "operator": "Exists"}]),
         room_with(on=node(unschedulable=True)), []),
        (pod(), room_with(on=node(taints=[TAINT])),
         ["node(s) had untolerated taint {dedicated: gpu}"]),
        (pod(), room_with(on=node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])), []),
        (pod(nodeSelector={"a": "b"}), room_with(),
         ["node(s) didn't match Pod's node affinity/selector"]),
        (pod(**PORT), room_with(pod(**PORT)),
         ["node(s) didn't have free ports for the requested pod ports"]),
    ],
)  # fmt: skip
def test_a_pod_fits_or_is_told_why_not(one: Pod, room: Room, why: list[str]) -> None:
    assert sorted(refusals(one, room)) == sorted(why)


@pytest.mark.parametrize(
    ("annotations", "priority", "is_refused"),
    [({}, None, True), ({names.ANNOTATION_CONFIG_SOURCE: "file"}, 0, True),
     ({}, names.CRITICAL_PRIORITY, False)],
)  # fmt: skip
def test_only_its_priority_takes_a_pod_to_a_node_that_is_closed_to_its_namespace(
    annotations: dict[str, str], priority: int | None, is_refused: bool
) -> None:
    """Anybody may annotate a pod as one of a file, and would be refused again without a pause."""
    one = pod(priority=priority)
    one.metadata.annotations = annotations
    closed = Room(node(), Counter[str | fit.HostPort](), {("n1", "default")})
    why = ["node(s) had no memory for more pods of the namespace (--max-node-mib)"]
    assert refusals(one, closed) == (why if is_refused else [])


def test_the_emptiest_node_is_used_least_and_names_decide_between_equal_ones() -> None:
    wanted = placement.demand(pod(requests={"cpu": "100m"}))
    half = room_with(pod(requests={"cpu": "1"}), on=node("a"))
    crowded = room_with(pod(), on=node("b"))
    free, free_too = room_with(on=node("c")), room_with(on=node("d"))
    rooms = [half, free_too, crowded, free]

    assert [r.node.metadata.name for r in sorted(rooms, key=lambda r: r.fullness(wanted))] == [
        "c", "d", "b", "a",
    ]  # fmt: skip
    empty = room_with(on=node("e", allocatable={}))
    assert empty.fullness(wanted)[0] > 0, "nothing is divided by"


@pytest.mark.parametrize(
    ("counted", "nodes", "text"),
    [
        ({}, 0, "no nodes available to schedule pods"),
        ({"Insufficient cpu": 1, "node(s) had untolerated taint {a: }": 2}, 3,
         "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: }."),
        ({"Too many pods": 10, "Insufficient cpu": 9}, 12,
         "0/12 nodes are available: 10 Too many pods, 9 Insufficient cpu."),
    ],
)  # fmt: skip
def test_reasons_are_told_as_the_reference_tells_them(
    counted: dict[str, int], nodes: int, text: str
) -> None:
    assert placement.explanation(counted, nodes) == text


def test_endless_reasons_are_cut() -> None:
    told = placement.explanation({f"taint {number}": 1 for number in range(1000)}, 1000)

    assert told.endswith("and 970 other reasons.") and len(told) < 1000


@pytest.mark.parametrize(
    ("one", "own"),
    [
        (pod(), True),
        (pod(schedulerName="default-scheduler"), True),
        (pod(schedulerName="another"), False),
        (pod(schedulingGates=[{"name": "wait"}]), False),
        (pod(schedulingGates=[]), True),
        (pod(nodeName="n1"), False),
    ],
)
def test_only_pods_that_wait_for_the_default_scheduler_are_its_own(one: Pod, own: bool) -> None:
    assert placement.is_own(one) is own


TERM = {"labelSelector": {}, "topologyKey": "zone"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"affinity": {"podAffinity": {_REQUIRED: [TERM]}}},
         f"spec.affinity.podAffinity.{_REQUIRED} is not weighed here: set spec.nodeName"),
        ({"affinity": {"podAntiAffinity": {_REQUIRED: [TERM]}}}, "spec.affinity.podAntiAffinity"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
         "spec.topologySpreadConstraints is not weighed here"),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        ({"topologySpreadConstraints": 5}, ""),  # as any pod may be stored
        ({"topologySpreadConstraints": [5]}, ""),
        ({"affinity": {"podAffinity": 5, "podAntiAffinity": {_REQUIRED: {}}}}, ""),
        ({"affinity": {"podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}, ""),
        ({"nodeSelector": {str(number): "" for number in range(101)}},
         "a choice by over 100 expressions in spec.affinity.nodeAffinity and spec.nodeSelector is"),
    ],
)  # fmt: skip
def test_what_is_not_weighed_is_named_by_its_path(spec: dict[str, Any], path: str) -> None:
    one = pod(**spec)
    told = placement.place(one, placement.demand(one), [room_with()])
    assert isinstance(told, str) is bool(path)
    assert not isinstance(told, str) or told.startswith(path)


def test_thousands_of_amounts_are_neither_read_nor_weighed() -> None:
    """A pod that asks for them is told; a node may report them, and nobody reads those."""
    many = {f"example.com/r{number}": "1" for number in range(9000)}
    greedy = pod(requests={**many, "cpu": "1"})
    rich = node(allocatable={**many, "pods": "2", "cpu": "2"})
    began_s = time.process_time()
    room = room_with(greedy, on=rich)
    told = placement.place(greedy, placement.demand(greedy), [room])
    assert isinstance(told, str) and told.startswith("a sum of over 1000 amounts of resources in")
    assert refusals(pod(requests={"example.com/r7": "2"}), room) == ["Insufficient example.com/r7"]
    assert refusals(pod(requests={"cpu": "1001m"}), room) == ["Insufficient cpu"]
    assert time.process_time() - began_s < 0.5  # adding up all of it takes ten times that


@pytest.mark.parametrize(
    "spec", [{"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}, {"unschedulable": True}]
)
def test_thousands_of_tolerations_are_read_once_for_all_nodes(spec: dict[str, Any]) -> None:
    """A tenant's pod with 40,000 took a round of 100 nodes 4 s."""
    listed = [{"key": f"k{number}", "operator": "Exists"} for number in range(10_000)]
    listed += [{"key": "dedicated", "value": f"{number}"} for number in range(10_000)]
    one = pod(tolerations=listed)
    rooms = [room_with(on=node(f"n{number}", **spec)) for number in range(400)]
    began_s = time.process_time()
    told = placement.place(one, placement.demand(one), rooms)
    assert isinstance(told, str) and told.startswith("0/400 nodes are available: 400 node(s)")
    assert time.process_time() - began_s < 0.5
