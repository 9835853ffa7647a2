"""Each action writes only what was decided, and only to the object that was meant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from orch.lifecycle.apply import Applier
from orch.lifecycle.decide.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    RemoveLease,
    RemoveOrphan,
    UpdateNode,
)
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod, PodCondition
from tests.fakes import cluster
from tests.fakes.api import FakeApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASES = "orch-node-lease"


class World:
    """A server, and the events that were told."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.told: list[tuple[str, str, str]] = []
        self.applier = Applier(self.api, self, LifecycleMetrics(), now=lambda: NOW)  # type: ignore[arg-type]

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        self.told.append((obj.metadata.name, type, reason))

    def stored(self, obj: Any) -> Any:
        """As the controller sees it."""
        self.api.store.put(obj)
        return self.peek(obj)

    def peek(self, obj: ApiObject) -> Any:
        return self.api.store.peek(type(obj), obj.metadata.name, obj.metadata.namespace or "")


@pytest.fixture
def world() -> World:
    return World()


def condition(kind: str, status: str, **more: str) -> PodCondition:
    return PodCondition(type=kind, status=status, **more)  # type: ignore[arg-type]


def a_pod(*conditions: PodCondition, phase: str = "Running") -> Pod:
    pod = cluster.pod("p1", "n1")
    pod.status.conditions, pod.status.phase = list(conditions), phase
    return pod


async def test_marking_changes_ready_alone_and_keeps_its_reason(world: World) -> None:
    pod = world.stored(
        a_pod(condition("Initialized", "True"), condition("Ready", "True", reason="Why"))
    )
    assert await world.applier.apply(MarkPodNotReady(pod))
    first, ready = world.peek(pod).status.conditions
    assert (first.type, first.status, first.lastTransitionTime) == ("Initialized", "True", None)
    assert (ready.status, ready.reason) == ("False", "Why")
    assert ready.lastTransitionTime == "2026-01-01T00:00:00Z"
    assert world.told == [("p1", "Warning", "NodeNotReady")]


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
async def test_an_orphan_is_failed_unless_over_and_goes_without_grace(
    world: World, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pod = world.stored(a_pod(phase=phase))
    assert await world.applier.apply(RemoveOrphan(pod))
    said, deleted = world.api.made("patch")[0].body["status"], world.api.made("delete")[0].body
    assert said.get("phase") == {"Running": "Failed", "Succeeded": None}[phase]
    (why,) = said["conditions"]
    assert (why["type"], why["status"], why["reason"]) == (
        "DisruptionTarget", "True", "DeletionByPodGC",
    )  # fmt: skip
    assert deleted == {"gracePeriodSeconds": 0, "uid": pod.metadata.uid}
    assert world.peek(pod) is None
    assert f"removed pod {pod.key}: its node n1 does not exist" in caplog.messages


@pytest.mark.parametrize("action", [RemoveOrphan, RemoveLease])
async def test_what_has_its_node_back_stays(world: World, action: Any) -> None:
    world.stored(cluster.node("n1"))
    obj = world.stored(a_pod() if action is RemoveOrphan else cluster.lease("n1"))
    assert not await world.applier.apply(action(obj))
    assert world.peek(obj) == obj


def namesakes() -> list[tuple[ApiObject, Any]]:
    """Objects whose place another took since they were seen, and what was decided on them."""
    disrupted = a_pod(condition("DisruptionTarget", "True"))  # said before: only to be deleted
    taints = (cluster.taint("node.orch.io/unreachable"),)
    node, lease = cluster.node("n1"), cluster.lease("n1")
    return [
        (a_pod(condition("Ready", "True")), MarkPodNotReady),
        (disrupted, EvictPod),
        (disrupted, RemoveOrphan),
        (lease, RemoveLease),
        (node, lambda seen: UpdateNode(seen, taints=taints)),
        (node, lambda seen: UpdateNode(seen, conditions=(cluster.condition("Ready", "Unknown"),))),
    ]


async def test_a_pod_is_evicted_once_until_the_watch_shows_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    seen = world.stored(a_pod(condition("DisruptionTarget", "True")))
    assert [await world.applier.apply(EvictPod(seen)) for _ in range(3)] == [True, False, False]
    assert [reason for _, _, reason in world.told] == ["TaintManagerEviction"]
    assert len([line for line in caplog.messages if line.startswith("evicted pod")]) == 1


@pytest.mark.looptime
async def test_an_eviction_that_nobody_sees_is_asked_for_again(world: World) -> None:
    seen = world.stored(a_pod(condition("DisruptionTarget", "True")))
    assert await world.applier.apply(EvictPod(seen))
    world.stored(seen)  # as from a copy of the store
    await asyncio.sleep(31)
    assert await world.applier.apply(EvictPod(seen))


@pytest.mark.parametrize("number", range(len(namesakes())))
async def test_another_object_of_that_name_is_left_alone(world: World, number: int) -> None:
    obj, decided = namesakes()[number]
    seen = world.stored(obj)
    other = obj.model_copy(update={"metadata": obj.metadata.model_copy(update={"uid": "new"})})
    there = world.stored(other)
    action: Action = decided(seen)
    assert not await world.applier.apply(action)
    assert world.peek(obj) == there and world.applier.failures == 0


@pytest.mark.parametrize("number", [4, 5])
async def test_a_node_that_was_written_since_is_decided_on_again(world: World, number: int) -> None:
    obj, decided = namesakes()[number]
    seen = world.stored(obj)
    there = world.stored(world.peek(obj))  # a newer version of the same
    assert not await world.applier.apply(decided(seen))
    assert world.peek(obj) == there and world.applier.failures == 0
