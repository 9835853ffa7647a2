"""After pkg/controller/podgc (upstream): what nodes leave behind is removed, after a quarantine."""

from orch.lifecycle.decide.records import RemoveLease, RemoveOrphan
from orch.wire.records.configuration import Lease
from orch.wire.records.meta import ObjectMeta
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
