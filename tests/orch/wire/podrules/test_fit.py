"""Whether a pod fits on a node; cases after the reference's plugins and component-helpers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.podrules import fit, podspec
from orch.wire.podrules.fit import HostPort
from orch.wire.podrules.podspec import Tolerations
from orch.wire.records.core import Node, NodeSpec, Taint
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodStatus, Toleration

LABELS = {"disk": "ssd", "cores": "8", "zone": "a"}
NODE = Node(metadata=ObjectMeta(name="n1", labels=LABELS))


def pod(**spec: Any) -> Pod:
    return Pod.from_wire({"metadata": {"name": "p"}, "spec": {"containers": [], **spec}})


def required(*terms: Any) -> dict[str, Any]:
    chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"affinity": {"nodeAffinity": chosen}}


def labels(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    found = [{"key": k, "operator": o, "values": v} for k, o, v in expressions]
    return {"matchExpressions": found}


def named(operator: str, *names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [*names]}]}


SSD = labels(("disk", "In", ["ssd", "nvme"]))
HDD = labels(("disk", "In", ["hdd"]))


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({}, True),
        ({"nodeSelector": {"disk": "ssd"}}, True),
        ({"nodeSelector": {"disk": "ssd", "zone": "b"}}, False),
        ({"nodeSelector": {"gpu": ""}}, False),
        (required(SSD), True),
        (required(HDD), False),
        (required(HDD, SSD), True),  # one of them
        (required(labels(("disk", "In", ["ssd"]), ("zone", "In", ["b"]))), False),  # all of it
        (required(labels(("disk", "NotIn", ["hdd"]))), True),
        (required(labels(("gpu", "NotIn", ["x"]))), True),
        (required(labels(("gpu", "Exists", []))), False),
        (required(labels(("gpu", "DoesNotExist", []))), True),
        (required(labels(("cores", "Gt", ["7"]))), True),
        (required(labels(("cores", "Gt", ["8"]))), False),
        (required(labels(("cores", "Lt", ["9"]))), True),
        (required(labels(("disk", "Gt", ["1"]))), False),  # no number
        (required(labels(("cores", "Gt", ["1", "2"]))), False),
        (required(labels(("disk", "Like", ["ssd"]))), False),
        (required(named("In", "n1")), True),
        (required(named("In", "n2")), False),
        (required(named("NotIn", "n2")), True),
        (required({**SSD, **named("In", "n2")}), False),
        (required(), False),
        (required({}), False),
        (required({}, SSD), True),
        ({**required(SSD), "nodeSelector": {"zone": "b"}}, False),
        ({"affinity": {"nodeAffinity": {}}}, True),
        ({"affinity": None}, True),
        ({"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": HDD}]
        }}}, True),
    ],
)  # fmt: skip
def test_a_pod_chooses_its_nodes(spec: dict[str, Any], matches: bool) -> None:
    assert fit.node_choice(pod(**spec)).matches(NODE) is matches


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms",
    [
        [SSD] * 101,
        [labels(*[("disk", "In", ["ssd"])] * 101)],
        [labels(("disk", "In", ["ssd"] * 1001))],
        [labels(("disk", "In", ["ssd"] * 10))] * 20_000,
    ],
    ids=["terms", "expressions", "values", "megabytes"],
)
def test_an_endless_choice_matches_nothing_and_costs_little(terms: list[Any]) -> None:
    chosen = pod(**required(*terms))
    began_s = time.thread_time()
    choice = fit.node_choice(chosen)
    took_s = time.thread_time() - began_s

    assert choice.is_too_large and not choice.matches(NODE)
    assert took_s < 0.02


def test_the_taints_of_the_asked_effects_count() -> None:
    taints = [Taint(key="a", effect="PreferNoSchedule"), Taint(key="b", effect="NoSchedule")]
    node = Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(taints=taints))
    none, all_of_b = Tolerations(()), Tolerations([Toleration(key="b", operator="Exists")])

    assert fit.untolerated(none, node, "NoSchedule", "NoExecute") == taints[1]
    assert fit.untolerated(none, node, "NoExecute") is None
    assert fit.untolerated(all_of_b, node, "NoSchedule") is None


def container(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "ports": [*ports], **more}


@pytest.mark.parametrize(
    ("wanted", "taken", "meets"),
    [
        (("TCP", "0.0.0.0", 80), ("TCP", "127.0.0.1", 80), True),
        (("TCP", "127.0.0.1", 80), ("TCP", "0.0.0.0", 80), True),
        (("TCP", "127.0.0.1", 80), ("TCP", "127.0.0.2", 80), False),
        (("UDP", "0.0.0.0", 80), ("TCP", "0.0.0.0", 80), False),
        (("TCP", "0.0.0.0", 81), ("TCP", "0.0.0.0", 80), False),
    ],
)
def test_two_ports_meet_or_not(
    wanted: tuple[str, str, int], taken: tuple[str, str, int], meets: bool
) -> None:
    found = fit.used_port([HostPort(*wanted)], [HostPort(*taken)])
    assert (found == HostPort(*wanted)) is meets


def test_the_ports_of_the_host_are_those_asked_for_or_all_on_its_network() -> None:
    ports = {"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"}

    assert fit.host_ports(pod(containers=[container(*ports)])) == [("UDP", "0.0.0.0", 8081)]
    on_host = pod(hostNetwork=True, containers=[container(*ports)])
    assert [port.number for port in fit.host_ports(on_host)] == [80, 81]


def test_amounts_are_of_every_resource_with_limits_as_requests() -> None:
    one = container(resources={"requests": {"cpu": "100m"}, "limits": {"orch.io/gpu": "2"}})
    other = container(resources={"requests": {"cpu": "1", "memory": 0}})

    assert fit.amounts(pod(containers=[one, other])) == {"cpu": 1100, "orch.io/gpu": 2000}


def test_amounts_count_the_pod_as_a_whole_and_its_overhead() -> None:
    bare, whole = container(), {"requests": {"cpu": "2"}, "limits": {"memory": "1"}}
    overhead = {"cpu": "250m", "memory": "1"}

    assert fit.amounts(pod(containers=[bare], overhead=overhead)) == {"cpu": 250, "memory": 1000}
    bounded = pod(containers=[bare], resources=whole, overhead=overhead)
    assert fit.amounts(bounded) == {"cpu": 2250, "memory": 2000}


@pytest.mark.parametrize(
    ("granted", "cpu"),
    [("3", 3000), ("1", 2000), ("2000m", 2000), ("x", 2000), (None, 2000), ("-5", 2000)],
)
def test_a_pod_that_shrinks_keeps_its_room_until_its_node_has_taken_it_back(
    granted: str | None, cpu: int
) -> None:
    resources = {"requests": {"cpu": "2"}}
    allocated = {"allocatedResources": {"cpu": granted, "orch.io/gpu": "9"}}
    of_container = {"containerStatuses": [{"name": "c", **allocated}]}
    by_container = pod(containers=[container(resources=resources)])
    as_a_whole = pod(containers=[container()], resources=resources)

    for one, status in ((by_container, of_container), (as_a_whole, allocated)):
        one.status = PodStatus.from_wire(status)
        assert fit.amounts(one) == {"cpu": cpu}


AMOUNTS = st.dictionaries(
    st.sampled_from(("cpu", "memory", "example.com/a", "example.com/b")),
    st.integers(0, 5).map(str),
    max_size=3,
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.just("c"), "resources": RESOURCES}), max_size=3
)
INITS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("i"), "resources": RESOURCES},
        optional={"restartPolicy": st.just("Always")},
    ),
    max_size=4,
)


@given(CONTAINERS, INITS, RESOURCES, AMOUNTS)
def test_all_amounts_together_are_what_each_is_by_itself(
    containers: list[Any], inits: list[Any], whole: dict[str, Any], overhead: dict[str, str]
) -> None:
    spec = {"containers": containers, "initContainers": inits, "resources": whole}
    one = Pod.from_wire({"metadata": {"name": "p"}, "spec": {**spec, "overhead": overhead}})
    names = ("cpu", "memory", "example.com/a", "example.com/b")
    each = {name: podspec.requested(one, name) for name in names}
    assert fit.amounts(one) == {name: amount for name, amount in each.items() if amount}


def test_ports_are_compared_with_thousands_at_once() -> None:
    taken = [HostPort("TCP", "10.0.0.1", number) for number in range(1, 20_000)]
    wanted = [HostPort("UDP", fit.ANY_ADDRESS, number) for number in range(1, 20_000)]
    assert fit.used_port(wanted, taken) is None
    assert fit.used_port([*wanted, HostPort("TCP", fit.ANY_ADDRESS, 7)], taken) is not None
