"""Cases after cm/helpers_test.go and node_container_manager_linux_test.go (upstream)."""

import pytest

from nodeagent.node.rules import capacity
from nodeagent.node.rules.facts import FilesystemFacts
from nodeagent.node.rules.pressure import parse_thresholds
from tests.fakes import node

GI = node.GI


def test_capacity_counts_cores_memory_storage_and_pods() -> None:
    amounts = capacity.capacity(node.facts(), max_pods=110)
    assert capacity.as_texts(amounts) == {
        "cpu": "4",
        "memory": "8Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }


@pytest.mark.parametrize(("per_core", "pods"), [(0, 110), (10, 40), (100, 110)])
def test_pods_are_limited_per_core_too(per_core: int, pods: int) -> None:
    amounts = capacity.capacity(node.facts(), max_pods=110, pods_per_core=per_core)
    assert amounts["pods"] == pods


def test_what_was_not_measured_is_missing() -> None:
    facts = node.facts(
        usage=node.usage(node_fs=FilesystemFacts()), machine=node.machine(cpu_count=0)
    )
    amounts = capacity.capacity(facts, max_pods=110)
    assert capacity.missing_resources(amounts) == ["cpu", "ephemeral-storage"]


def test_huge_pages_are_a_resource_and_leave_memory() -> None:
    machine = node.machine(hugepages_bytes={2 * 1024**2: GI, 1024**3: 0})
    amounts = capacity.capacity(node.facts(machine=machine), max_pods=110)
    left = capacity.allocatable(amounts, {}, ())
    assert amounts["hugepages-2Mi"] == GI and amounts["hugepages-1Gi"] == 0
    assert left["memory"] == 7 * GI and left["hugepages-2Mi"] == GI


def test_allocatable_is_capacity_less_reservations_and_hard_thresholds() -> None:
    amounts = capacity.capacity(node.facts(), max_pods=110)
    reserved = capacity.parse_reserved({"cpu": "250m", "memory": "1Gi"}, {"cpu": "0.25"})
    thresholds = parse_thresholds({"memory.available": "512Mi", "nodefs.available": "10%"})
    left = capacity.as_texts(capacity.allocatable(amounts, reserved, thresholds))
    assert left == {
        "cpu": "3500m",
        "memory": "6656Mi",
        "ephemeral-storage": "90Gi",
        "pods": "110",
    }


def test_soft_thresholds_and_inodes_hold_nothing_back() -> None:
    soft = parse_thresholds({"memory.available": "1Gi"}, grace_s={"memory.available": 60})
    inodes = parse_thresholds({"nodefs.inodesFree": "5%"})
    amounts = capacity.capacity(node.facts(), max_pods=110)
    assert capacity.allocatable(amounts, {}, (*soft, *inodes)) == amounts


def test_allocatable_never_falls_below_zero_and_the_excess_is_a_problem() -> None:
    amounts = capacity.capacity(node.facts(), max_pods=110)
    reserved = capacity.parse_reserved({"memory": "9Gi", "cpu": "9"})
    usable = capacity.allocatable(amounts, reserved, ())
    assert (usable["memory"], usable["cpu"]) == (0, 0)
    problems = capacity.reservation_problems(amounts, reserved)
    assert any("9Gi memory" in problem and "8Gi" in problem for problem in problems)
    assert len(problems) == 2
