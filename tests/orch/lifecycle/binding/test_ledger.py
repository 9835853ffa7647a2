"""The node where a pod counts from look to look, and the order and times of those who wait."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orch.lifecycle.binding import placement
from orch.lifecycle.binding.ledger import Cluster, Ledger
from orch.lifecycle.binding.placement import Demand, Room
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodSpec

NODES = {name: Node(metadata=ObjectMeta(name=name)) for name in ("n1", "n2")}


def pod(key: str, priority: int | None = None, created: str = "2026-01-01", **meta: Any) -> Pod:
    namespace, _, name = key.partition("/")
    metadata = ObjectMeta(
        name=name, namespace=namespace, creationTimestamp=created, **{"uid": key, **meta}
    )
    return Pod(metadata=metadata, spec=PodSpec(priority=priority))


def running(key: str, node: str, cpu: str = "1", port: int = 0, phase: str = "Running") -> Pod:
    ports = [{"containerPort": 1, "hostPort": port}] if port else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": ports}
    one = pod(key).to_wire()
    one |= {"spec": {"containers": [container], "nodeName": node}, "status": {"phase": phase}}
    return Pod.from_wire(one)


def look(ledger: Ledger, *pods: Pod, now_s: float = 0.0) -> dict[str, Room]:
    rooms = ledger.look(Cluster(NODES, {one.key: one for one in pods}), now_s)
    return {room.node.metadata.name: room for room in rooms}


def order(*pods: Pod, ledger: Ledger | None = None, now_s: float = 100.0) -> list[str]:
    ledger = ledger or Ledger()
    look(ledger, *pods)
    return [entry.pod.key for entry in ledger.due(now_s)]


def pause_s(ledger: Ledger, now_s: float) -> int | None:
    """After how many whole seconds the only pod that waits is due."""
    return next((after for after in range(100) if ledger.due(now_s + after)), None)


def test_the_highest_priority_comes_first_and_none_is_zero() -> None:
    assert order(pod("a/x"), pod("b/y", 10), pod("c/z", -1), pod("d/w", 0), pod("a/v", 10)) == [
        "b/y", "a/v", "a/x", "d/w", "c/z",
    ]  # fmt: skip


def test_namespaces_take_turns_however_many_pods_one_has() -> None:
    many = [pod(f"many/{number}") for number in range(4)]
    assert order(*many, pod("few/a"), pod("few/b")) == [
        "many/0", "few/a", "many/1", "few/b", "many/2", "many/3",
    ]  # fmt: skip


def test_in_a_namespace_the_longest_due_come_first_then_the_oldest() -> None:
    tried, long_ago, old = (
        pod("a/tried", created="2025"),
        pod("a/long-ago"),
        pod("a/old", None, "2025"),
    )
    ledger = Ledger()
    look(ledger, tried, long_ago)
    ledger.failed(ledger.waiting[tried.key], 60.0)
    ledger.failed(ledger.waiting[long_ago.key], 50.0)

    found = order(tried, pod("a/new"), old, long_ago, ledger=ledger)
    assert found == ["a/old", "a/new", "a/long-ago", "a/tried"]


def test_a_pod_is_tried_again_after_growing_pauses() -> None:
    ledger, one = Ledger(), pod("a/x")
    look(ledger, one)
    assert pause_s(ledger, 100.0) == 0
    pauses = []
    for _ in range(9):
        ledger.failed(ledger.waiting["a/x"], 100.0)
        pauses.append(pause_s(ledger, 100.0))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_pod_whose_spec_has_changed_or_that_is_another_is_tried_at_once() -> None:
    ledger, one = Ledger(), pod("a/x", generation=1)
    look(ledger, one)
    ledger.failed(ledger.waiting["a/x"], 100.0)
    look(ledger, pod("a/x", generation=1))
    assert pause_s(ledger, 100.0) == 1, "its status has"
    look(ledger, pod("a/x", generation=2))
    assert pause_s(ledger, 100.0) == 0

    ledger.failed(ledger.waiting["a/x"], 100.0)
    look(ledger, pod("a/x", generation=2, uid="another"))
    assert pause_s(ledger, 100.0) == 0


def test_those_that_wait_no_longer_are_forgotten() -> None:
    ledger, one = Ledger(), pod("a/x")
    look(ledger, one)
    ledger.failed(ledger.waiting["a/x"], 100.0)
    look(ledger)
    assert pause_s(ledger, 100.0) is None
    look(ledger, pod("a/x"))
    assert pause_s(ledger, 100.0) == 0


def test_a_pod_on_its_way_counts_until_it_is_there_or_too_long_on_its_way() -> None:
    ledger, one = Ledger(), pod("a/x")
    look(ledger, one)
    ledger.assume(ledger.waiting["a/x"], "n1", 160.0)
    assert look(ledger, one, now_s=159.0)["n1"].in_use == {"pods": 1000}
    assert not ledger.waiting
    assert look(ledger, one, now_s=160.0)["n1"].in_use == {}
    assert [*ledger.waiting] == ["a/x"]

    ledger.assume(ledger.waiting["a/x"], "n1", 260.0)
    rooms = look(ledger, running("a/x", "n2", cpu="250m"), now_s=300.0)
    assert rooms["n1"].in_use == {}
    assert rooms["n2"].in_use == {"cpu": 250, "pods": 1000}


def test_a_pod_is_weighed_when_its_spec_has_changed_and_not_at_every_look() -> None:
    weighed = list[str]()

    def weigh(one: Pod) -> Demand:
        weighed.append(one.key)
        return placement.demand(one)

    ledger, one, other = Ledger(weigh), pod("a/x", generation=1), running("a/y", "n1")
    for _ in range(3):
        look(ledger, one, other)
        ledger.failed(ledger.waiting["a/x"], 100.0)
    look(ledger, pod("a/x", generation=1), other)
    assert weighed == ["a/x", "a/y"]
    look(ledger, pod("a/x", generation=2), other)
    assert weighed == ["a/x", "a/y", "a/x"]


def test_a_pod_that_cannot_be_weighed_neither_waits_nor_counts() -> None:
    ledger = Ledger(lambda _one: {})
    rooms = look(ledger, pod("a/x"), running("a/y", "n1"))
    assert not ledger.waiting
    assert rooms["n1"].in_use == {}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_counted_step_by_step_is_what_a_first_look_counts(seed: int) -> None:
    some, ledger = random.Random(seed), Ledger()
    pods: dict[str, Pod] = {}
    for _ in range(60):
        key = f"a/{some.randrange(8)}"
        if some.random() < 0.3:
            pods.pop(key, None)
        else:
            pods[key] = running(
                key,
                some.choice(("n1", "n2", "gone", "")),
                some.choice(("1", "250m", "0")),
                some.choice((0, 80, 81)),
                some.choice(("Running", "Running", "Succeeded")),
            )
        kept, anew = look(ledger, *pods.values()), look(Ledger(), *pods.values())
        for name in NODES:
            assert kept[name].in_use == anew[name].in_use
            assert 0 not in kept[name].in_use.values()
    look(ledger)
    assert all(not room.in_use for room in look(ledger).values())
