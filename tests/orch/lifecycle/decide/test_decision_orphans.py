"""After pkg/controller/podgc (upstream): what nodes leave behind is removed, after a quarantine."""

from orch.lifecycle.decide.records import (
    MarkPodUnscheduled,
    Memory,
    Note,
    RemoveLease,
    RemoveOrphan,
)
from orch.wire.records.configuration import Lease
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import PodCondition
from tests.fakes.cluster import Cluster, node, pod


def with_gone_node() -> Cluster:
    cluster = Cluster(node("n1"), node("n2"))
    cluster.add(pod("p1", "n1"), pod("p2", "n2"))
    cluster.tick()
    del cluster.nodes["n1"]
    return cluster


def test_pods_and_lease_of_a_gone_node_are_removed_after_the_quarantine() -> None:
    cluster = with_gone_node()
    cluster.run(40, beating=["n2"])
    assert set(cluster.pods) == {"uid-p1", "uid-p2"}
    removed = cluster.run(5, beating=["n2"])
    assert {type(action) for action in removed} == {RemoveOrphan, RemoveLease}
    assert set(cluster.pods) == {"uid-p2"} and set(cluster.leases) == {"n2"}


def test_a_node_that_registers_again_in_time_keeps_its_pods() -> None:
    cluster = with_gone_node()
    cluster.run(35, beating=["n2"])
    cluster.add(node("n1"))
    cluster.run(60, beating=["n1", "n2"])
    assert set(cluster.pods) == {"uid-p1", "uid-p2"}


def test_a_lease_that_belongs_to_no_node_is_not_touched() -> None:
    cluster = Cluster(node("n1"))
    cluster.leases["controller"] = Lease(metadata=ObjectMeta(name="controller", uid="u"))
    cluster.run(120, beating=["n1"])
    assert "controller" in cluster.leases


def test_a_stale_view_removes_nothing() -> None:
    cluster = with_gone_node()
    cluster.tick(5)
    cluster.age_s = 60
    assert cluster.run(300) == []


UNBOUND = (
    "nothing has given this pod a node: set spec.nodeName, or let orch-controller-manager choose"
    " one (--bind-pods, for pods of the default scheduler)"
)


def said(cluster: Cluster, seconds: float) -> list[tuple[str, str]]:
    """What the controller tells of pods, by their names."""
    done = cluster.run(seconds, beating=list(cluster.nodes))
    told = []
    for action in done:
        if isinstance(action, MarkPodUnscheduled):
            told.append((action.pod.metadata.name, action.message))
        elif isinstance(action, Note) and action.obj.kind == "Pod":
            told.append((action.obj.metadata.name, action.message))
    return told


def test_a_pod_for_an_unknown_node_is_told_once_before_it_is_removed() -> None:
    cluster = Cluster(node("n1"))
    cluster.tick()
    accepted = pod("accepted", "gone")
    accepted.status.startTime = "2026-01-01T00:00:00Z"
    cluster.add(pod("lost", "nowhere", ready=False), pod("fine", "n1"), accepted)
    text = 'node "nowhere" does not exist: this pod is removed after 40 s unless it registers'
    assert said(cluster, 30) == [("lost", text)]
    assert said(cluster, 30) == []
    assert set(cluster.pods) == {"uid-fine"}


def test_a_pod_that_nobody_gives_a_node_is_told_once_and_after_a_while() -> None:
    cluster = Cluster(node("n1"))
    cluster.tick()
    judged, going = pod("judged", ""), pod("going", "")
    judged.status.conditions = [PodCondition(type="PodScheduled", status="False")]
    going.metadata.deletionTimestamp = "2026-01-01T00:00:00Z"
    bound = pod("bound", "")
    cluster.add(pod("waiting", ""), judged, going, bound)
    assert said(cluster, 5) == []
    cluster.add(pod("bound", "n1"))  # by somebody else's scheduler
    assert said(cluster, 10) == [("waiting", UNBOUND)]
    assert said(cluster, 60) == []
    cluster.memory = Memory()  # of another leader
    assert said(cluster, 15) == [("waiting", UNBOUND)]
    assert {"uid-waiting", "uid-judged", "uid-going", "uid-bound"} == set(cluster.pods)


def test_of_many_pods_of_a_namespace_a_few_are_told() -> None:
    """The thousands of one tenant pushed the events of nodes out of the queue."""
    cluster = Cluster(node("n1"))
    cluster.tick()
    cluster.add(*(pod(f"w{number}", "") for number in range(150)))
    cluster.add(*(pod(f"l{number}", "nowhere", ready=False) for number in range(150)))
    told = [name[0] for name, _ in said(cluster, 15)]
    assert (told.count("l"), told.count("w")) == (100, 100)


def test_a_pod_without_a_node_is_told_of_again_before_its_event_expires() -> None:
    cluster = Cluster(node("n1"))
    cluster.tick()
    cluster.add(pod("waiting", ""))
    assert said(cluster, 3700) == 3 * [("waiting", UNBOUND)]
