"""Cases after pkg/controller/nodelifecycle/node_lifecycle_controller_test.go (upstream), and after
defects reported against it: mass eviction, stale view, both kinds of not ready.
"""

from dataclasses import replace

import pytest

from orch.lifecycle.decide.records import Memory, Note, Settings, UpdateNode
from tests.fakes.cluster import Cluster, condition, node, pod, taint

TEN = [f"n{number}" for number in range(10)]


def cluster_of(*names: str, zone: str = "", **settings: float) -> Cluster:
    """Healthy nodes that the controller has looked at once."""
    cluster = Cluster(
        *(node(name, zone=zone) for name in names),
        settings=Settings(**settings),  # type: ignore[arg-type]
    )
    assert cluster.tick() == []
    return cluster


def updated(actions: list[object]) -> list[str]:
    return [a.node.metadata.name for a in actions if isinstance(a, UpdateNode)]


def test_a_node_that_renews_its_lease_is_left_alone() -> None:
    cluster = cluster_of("n1")
    assert cluster.run(3600, beating=["n1"]) == []


def test_a_ready_heartbeat_alone_keeps_a_node_alive() -> None:
    cluster = cluster_of("n1")
    for _ in range(20):
        cluster.report("n1")
        assert cluster.run(45) == []


def test_a_clock_that_runs_backwards_is_a_sign_of_life() -> None:
    cluster = cluster_of("n1")
    cluster.beat("n1")
    cluster.leases["n1"].spec.renewTime = "1999-01-01T00:00:00.000000Z"
    assert cluster.run(45) == []
    cluster.leases["n1"].spec.renewTime = "1998-01-01T00:00:00.000000Z"
    assert cluster.run(50) == []
    assert cluster.run(10) != []


def test_a_lease_that_disappears_is_none() -> None:
    cluster = cluster_of("n1", "n2")
    del cluster.leases["n1"]
    cluster.run(50, beating=["n2"])
    assert cluster.ready("n1") == "True"
    cluster.run(5, beating=["n2"])
    assert cluster.ready("n1") == "Unknown"


def test_a_silent_node_becomes_unknown_after_the_grace_and_not_before() -> None:
    cluster = cluster_of("n1", "n2")
    assert cluster.run(50, beating=["n2"]) == []
    cluster.tick(0.1, beating=["n2"])
    conditions = cluster.conditions("n1")
    assert {c.status for c in conditions.values()} == {"Unknown"}
    ready = conditions["Ready"]
    assert (ready.reason, ready.message) == (
        "NodeStatusUnknown",
        "NodeAgent stopped posting node status.",
    )
    assert ready.lastHeartbeatTime == "0" and ready.lastTransitionTime == "2026-01-01T00:17:30Z"
    assert cluster.ready("n2") == "True"
    assert cluster.taints("n1") == {"unreachable:NoSchedule", "unreachable:NoExecute"}
    added = {t.effect: t.timeAdded for t in cluster.nodes["n1"].spec.taints or ()}
    assert added == {"NoSchedule": None, "NoExecute": "2026-01-01T00:17:30Z"}
    assert ("NodeNotReady", "n1") in cluster.told


def test_the_network_condition_is_not_the_controllers() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.nodes["n1"].status.conditions.insert(0, condition("NetworkUnavailable", "False"))  # type: ignore[union-attr]
    cluster.run(60, beating=["n2"])
    conditions = cluster.conditions("n1")
    assert conditions["NetworkUnavailable"].status == "False"
    assert next(iter(conditions)) == "NetworkUnavailable"


def test_a_node_that_never_reported_has_the_longer_startup_grace() -> None:
    cluster = cluster_of("n2")
    cluster.add(node("n1", ready=""))
    del cluster.leases["n1"]
    cluster.tick()
    cluster.run(60, beating=["n2"])
    assert cluster.conditions("n1") == {}
    cluster.run(5, beating=["n2"])
    conditions = cluster.conditions("n1")
    assert list(conditions) == ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
    assert {(c.status, c.reason, c.message, c.lastHeartbeatTime) for c in conditions.values()} == {
        ("Unknown", "NodeStatusNeverUpdated", "NodeAgent never posted node status.", "created")
    }
    assert {c.lastTransitionTime for c in conditions.values()} == {"2026-01-01T00:17:45Z"}
    cluster.add(pod("late", "n1"))
    cluster.tick(5, beating=["n2"])
    assert _ready_pods(cluster) == set(), "what the controller wrote is no sign of life"


def test_a_node_that_comes_back_loses_its_taints_and_gets_a_whole_grace() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.run(60, beating=["n2"])
    cluster.report("n1")
    cluster.tick(1, beating=["n2"])
    assert cluster.taints("n1") == set()
    assert cluster.run(50, beating=["n2"]) == []


def test_a_lease_alone_does_not_make_an_unknown_node_ready() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.run(60, beating=["n2"])
    assert cluster.run(60, beating=["n1", "n2"]) == []
    assert cluster.ready("n1") == "Unknown"


def test_a_node_that_says_it_is_not_ready_is_tainted_so() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.report("n1", "False")
    cluster.tick(1, beating=["n1", "n2"])
    assert cluster.taints("n1") == {"not-ready:NoSchedule", "not-ready:NoExecute"}
    assert ("NodeNotReady", "n1") in cluster.told


def test_the_taints_are_swapped_when_the_reason_changes() -> None:
    cluster = cluster_of("n1", "n2", eviction_rate=0.0)
    cluster.nodes["n1"].spec.taints = [taint("node.orch.io/not-ready")]
    cluster.report("n1", "False")
    cluster.run(60, beating=["n2"])
    assert cluster.taints("n1") == {"unreachable:NoSchedule", "unreachable:NoExecute"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("MemoryPressure", "memory-pressure"),
        ("DiskPressure", "disk-pressure"),
        ("PIDPressure", "pid-pressure"),
        ("NetworkUnavailable", "network-unavailable"),
        ("SystemMemoryContentionPressure", "memory-contention-pressure"),
        ("KubepodsDiskContentionPressure", "disk-contention-pressure"),
    ],
)
def test_a_condition_keeps_new_pods_away(kind: str, name: str) -> None:
    cluster = cluster_of("n1")
    calm = cluster.nodes["n1"].status.conditions or []
    others = [c for c in calm if c.type != kind]
    cluster.nodes["n1"].status.conditions = [*others, condition(kind, "True")]
    cluster.tick(1)
    assert cluster.taints("n1") == {f"{name}:NoSchedule"}
    cluster.nodes["n1"].status.conditions = calm
    cluster.tick(1)
    assert cluster.taints("n1") == set()


def test_a_cordoned_node_is_tainted_and_foreign_taints_stay() -> None:
    cluster = cluster_of("n1")
    cluster.nodes["n1"].spec.taints = [taint("dedicated", "NoSchedule"), taint("mine")]
    cluster.nodes["n1"].spec.unschedulable = True
    cluster.tick(1)
    foreign = {"dedicated:NoSchedule", "mine:NoExecute"}
    assert cluster.taints("n1") == {*foreign, "unschedulable:NoSchedule"}
    cluster.nodes["n1"].spec.unschedulable = None
    cluster.tick(1)
    assert cluster.taints("n1") == foreign


def test_no_execute_taints_come_at_the_rate_of_the_zone_and_no_schedule_at_once() -> None:
    cluster = cluster_of(*TEN)
    cluster.run(55, beating=TEN[4:])
    tainted = [name for name in TEN if "unreachable:NoExecute" in cluster.taints(name)]
    assert tainted == ["n0"]
    assert all("unreachable:NoSchedule" in cluster.taints(name) for name in TEN[:4])
    for seconds in (10, 20, 30):
        cluster.run(10, beating=TEN[4:])
        tainted = [name for name in TEN if "unreachable:NoExecute" in cluster.taints(name)]
        assert len(tainted) == 1 + seconds // 10


def test_who_has_been_down_longest_is_evicted_first() -> None:
    cluster = cluster_of(*TEN, eviction_rate=0.0)
    cluster.run(20, beating=[name for name in TEN if name != "n5"])
    cluster.run(60, beating=[name for name in TEN if name not in ("n2", "n5")])
    assert [n for n in TEN if cluster.ready(n) == "Unknown"] == ["n2", "n5"]
    cluster.settings = Settings()
    cluster.tick(5, beating=TEN[6:])
    assert [n for n in TEN if "unreachable:NoExecute" in cluster.taints(n)] == ["n5"]


def test_a_zone_that_is_mostly_down_is_not_evicted_when_it_is_small() -> None:
    cluster = cluster_of(*TEN)
    cluster.run(200, beating=TEN[6:])
    assert not [n for n in TEN if "unreachable:NoExecute" in cluster.taints(n)]
    assert all(cluster.ready(name) == "Unknown" for name in TEN[:6])


def test_a_large_zone_that_is_mostly_down_is_evicted_slowly() -> None:
    names = [f"n{number:02}" for number in range(51)]
    cluster = cluster_of(*names)
    cluster.run(60, beating=names[40:])
    cluster.run(200, beating=names[40:])
    tainted = [n for n in names if "unreachable:NoExecute" in cluster.taints(n)]
    assert len(tainted) == 3


def test_one_dead_zone_among_living_ones_is_evicted() -> None:
    cluster = cluster_of("a1", "a2", zone="a")
    cluster.add(node("b1", zone="b"))
    cluster.tick()
    cluster.run(60, beating=["b1"])
    assert "unreachable:NoExecute" in cluster.taints("a1")


def test_when_everything_is_down_nobody_is_evicted_and_on_return_everyone_has_a_whole_grace() -> (
    None
):
    cluster = cluster_of("n1", "n2", "n3")
    cluster.run(50, beating=["n2", "n3"])
    cluster.run(5, beating=["n3"])
    assert "unreachable:NoExecute" in cluster.taints("n1")
    cluster.run(120)
    assert {cluster.ready(n) for n in cluster.nodes} == {"Unknown"}
    assert all(cluster.taints(n) == {"unreachable:NoSchedule"} for n in cluster.nodes)
    for name in ("n1", "n2"):
        cluster.report(name)
    cluster.tick(5)
    assert [cluster.ready(n) for n in ("n1", "n2", "n3")] == ["True", "True", "Unknown"]
    cluster.run(50)
    assert [cluster.ready(n) for n in ("n1", "n2")] == ["True", "True"]


def test_the_whole_grace_on_return_is_for_those_who_were_not_ready_too() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.run(20, beating=["n1"])
    cluster.report("n1", "False")
    cluster.run(45)
    assert (cluster.ready("n1"), cluster.ready("n2")) == ("False", "Unknown")
    cluster.report("n2")
    cluster.run(50, beating=["n2"])
    assert cluster.ready("n1") == "False"
    cluster.run(10, beating=["n2"])
    assert cluster.ready("n1") == "Unknown"


def test_excluded_nodes_have_no_say_in_the_state_of_their_zone() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.nodes["n2"].metadata.labels = {"node.orch.io/exclude-disruption": ""}
    cluster.run(60, beating=["n2"])
    assert cluster.taints("n1") == {"unreachable:NoSchedule"}, "the only one that counts is down"


def test_a_stale_view_judges_nobody_and_afterwards_everyone_has_a_whole_grace() -> None:
    cluster = cluster_of(*TEN)
    cluster.age_s = 15.1
    assert cluster.run(600) == []
    cluster.age_s = 0.0
    assert cluster.run(50) == []
    assert updated(cluster.run(10, beating=TEN[1:])) == ["n0"]


def test_one_blind_moment_is_enough_to_forgive() -> None:
    cluster = cluster_of(*TEN)
    cluster.run(45)
    cluster.age_s = 15.1
    cluster.tick(5)
    cluster.age_s = 0.0
    assert cluster.run(50) == []


def test_a_controller_that_slept_judges_nobody_when_it_wakes() -> None:
    cluster = cluster_of(*TEN)
    cluster.tick(5, beating=TEN)
    cluster.sleep(3600)
    assert cluster.tick() == []
    assert cluster.run(50) == []


def test_a_restart_is_no_wave_of_deaths_and_repeats_no_event() -> None:
    cluster = cluster_of(*TEN)
    cluster.run(60, beating=TEN[1:])
    told = len(cluster.told)
    cluster.memory = Memory()
    assert cluster.run(50, beating=TEN[1:]) == []
    assert len(cluster.told) == told
    assert "unreachable:NoExecute" in cluster.taints("n0")


def test_a_new_node_of_a_known_name_is_judged_anew() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.run(45, beating=["n2"])
    again = node("n1")
    again.metadata.uid = "another"
    cluster.nodes["n1"] = again
    assert [a.reason for a in cluster.tick(5, beating=["n2"]) if isinstance(a, Note)] == [
        "RegisteredNode"
    ]
    cluster.run(45, beating=["n2"])
    assert cluster.ready("n1") == "True"


def test_nodes_that_come_and_go_are_told() -> None:
    cluster = cluster_of("n1")
    cluster.add(node("n2"))
    cluster.tick(5, beating=["n1"])
    del cluster.nodes["n2"]
    cluster.tick(5, beating=["n1"])
    assert cluster.told == [("RegisteredNode", "n2"), ("RemovingNode", "n2")]


def test_a_write_that_failed_is_decided_again_without_another_event() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.run(55, beating=["n2"])
    cluster.nodes["n1"] = node("n1")  # as it was: the write was lost
    again = cluster.tick(5, beating=["n2"])
    assert [type(action) for action in again] == [UpdateNode]
    assert cluster.told.count(("NodeNotReady", "n1")) == 1


def test_pods_of_a_node_that_turns_are_marked_once_and_its_agent_is_not_argued_with() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add(pod("p1", "n1"), pod("p2", "n2"))
    cluster.report("n1", "False")
    cluster.tick(1, beating=["n1", "n2"])
    assert _ready_pods(cluster) == {"uid-p2"}
    cluster.add(pod("p1", "n1"))
    cluster.run(60, beating=["n1", "n2"])
    assert _ready_pods(cluster) == {"uid-p1", "uid-p2"}


def test_pods_of_a_silent_node_are_marked_even_by_a_controller_that_restarted() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add(pod("p1", "n1"))
    cluster.run(45, beating=["n2"])
    assert _ready_pods(cluster) == {"uid-p1"}
    cluster.memory = Memory()
    cluster.run(60, beating=["n2"])
    assert _ready_pods(cluster) == set()


def test_a_pod_that_could_not_be_marked_is_tried_again() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add(pod("p1", "n1"))
    cluster.report("n1", "False")
    cluster.look()  # and nothing of it is done
    cluster.tick(5, beating=["n1", "n2"])
    assert _ready_pods(cluster) == set()


def test_rates_are_the_settings() -> None:
    cluster = cluster_of(*TEN, eviction_rate=1.0)
    cluster.settings = replace(cluster.settings, unhealthy_zone_threshold=1.0)
    cluster.run(55, beating=TEN[9:])
    cluster.run(10, beating=TEN[9:])
    assert len([n for n in TEN if "unreachable:NoExecute" in cluster.taints(n)]) == 9


def _ready_pods(cluster: Cluster) -> set[str]:
    return {
        uid
        for uid, one in cluster.pods.items()
        if any(c.type == "Ready" and c.status == "True" for c in one.status.conditions or ())
    }
