"""Cases after pkg/controller/tainteviction (upstream)."""

import math

import pytest

from orch.lifecycle.decide import pods as decide_pods
from orch.lifecycle.decide.records import EvictPod, Note, Timer
from orch.wire.records.pods import Pod, Toleration
from tests.fakes.cluster import Cluster, node, pod, taint

T = Toleration

UNREACHABLE = taint("node.orch.io/unreachable")
STAYS = {
    "nothing said of another's taint": ([], [taint("k")], 0),
    "nothing said of the controller's": ([], [UNREACHABLE], 300),
    "for ever": ([T(key="k", operator="Exists")], [taint("k")], math.inf),
    "for a while": ([T(key="k", operator="Exists", tolerationSeconds=60)], [taint("k")], 60),
    "the shortest counts": (
        [
            T(key="k", operator="Exists", tolerationSeconds=60),
            T(operator="Exists", tolerationSeconds=30),
        ],
        [taint("k")],
        30,
    ),
    "each taint must be tolerated": (
        [T(key="k", operator="Exists")],
        [taint("k"), taint("other")],
        0,
    ),
    "negative is none": ([T(operator="Exists", tolerationSeconds=-5)], [UNREACHABLE], 0),
    "no taint": ([], [], math.inf),
}


@pytest.mark.parametrize("case", STAYS)
def test_a_pod_may_stay(case: str) -> None:
    tolerations, taints, expected = STAYS[case]
    assert decide_pods.tolerated_s(pod("p", "n", tolerations=tolerations), taints) == expected


def test_a_static_pods_reflection_stays_for_ever() -> None:
    mirror = pod("p", "n")
    mirror.metadata.annotations = {"orch.io/config.mirror": "hash"}
    assert decide_pods.tolerated_s(mirror, [taint("k")]) == math.inf


def test_a_timer_keeps_its_start_and_can_only_be_shortened() -> None:
    timer = decide_pods.next_timer(None, 300, 1000)
    assert timer == Timer(1000, 1300)
    assert decide_pods.next_timer(timer, 600, 1100) == Timer(1000, 1300)
    assert decide_pods.next_timer(timer, 100, 1050) == Timer(1000, 1100)
    assert decide_pods.next_timer(timer, math.inf, 1100) is None


def evicted(cluster: Cluster, seconds: float) -> list[str]:
    actions = cluster.run(seconds, beating=["n2"])
    return [action.pod.metadata.name for action in actions if isinstance(action, EvictPod)]


def silent_with(*pods: Pod) -> Cluster:
    """Two nodes, n1 silent since long and tainted."""
    cluster = Cluster(node("n1"), node("n2"))
    cluster.add(*pods)
    cluster.tick()
    cluster.run(55, beating=["n2"])
    assert "unreachable:NoExecute" in cluster.taints("n1")
    return cluster


def test_pods_leave_when_their_toleration_runs_out() -> None:
    exists = T(key="node.orch.io/unreachable", operator="Exists")
    hasty = exists.model_copy(update={"tolerationSeconds": 20})
    cluster = silent_with(
        pod("plain", "n1"),
        pod("hasty", "n1", tolerations=[hasty]),
        pod("loyal", "n1", tolerations=[exists]),
        pod("elsewhere", "n2"),
    )
    assert evicted(cluster, 15) == []
    assert evicted(cluster, 5) == ["hasty"]
    assert evicted(cluster, 275) == []
    assert evicted(cluster, 600) == ["plain"]
    assert set(cluster.pods) == {"uid-loyal", "uid-elsewhere"}


def test_a_node_that_comes_back_keeps_its_pods_and_that_is_told() -> None:
    cluster = silent_with(pod("p", "n1"))
    cluster.run(100, beating=["n2"])
    cluster.report("n1")
    actions = cluster.run(5, beating=["n1", "n2"])
    notes = [a for a in actions if isinstance(a, Note)]
    assert [(n.reason, n.message) for n in notes] == [
        ("TaintManagerEviction", "Cancelling deletion of Pod ns/p")
    ]
    assert [a for a in cluster.run(600, beating=["n1", "n2"]) if isinstance(a, EvictPod)] == []


def test_a_pod_that_is_already_going_is_left_alone() -> None:
    going = pod("p", "n1")
    going.metadata.deletionTimestamp = "now"
    cluster = silent_with(going)
    assert evicted(cluster, 600) == []
