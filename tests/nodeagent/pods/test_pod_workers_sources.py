"""Which pods are removed while their sources are still being read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from orch.wire.podrules import podspec
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.pods import pod
from tests.fakes.podworld import FakeSource, PodWorld, named

pytestmark = pytest.mark.looptime


async def test_a_source_read_while_pods_are_compared_removes_none(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods collected before the source was read do not show that a pod is unwanted."""
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    before = world.running()
    await world.stop()
    heir = world.successor()
    heir.source = late = FakeSource(ready=False)
    heir.use(late)
    real = heir.registry.set_desired

    def read_meanwhile(pods: Iterable[Pod], **facts: Any) -> None:
        real(pods, **facts)
        if heir.registry.listed:
            late.given = [pod()]
            late.ready = True

    monkeypatch.setattr(heir.registry, "set_desired", read_meanwhile)
    await heir.start()
    await heir.until(lambda: late.ready)
    await asyncio.sleep(30)
    assert [pod.key for pod in heir.registry.pods()] == ["default/web"]
    assert heir.running() == before


async def test_a_static_pod_that_does_not_fit_has_others_end_and_then_runs(world: PodWorld) -> None:
    world.node = Node.from_wire({"status": {"allocatable": {"pods": "1"}}})
    files = FakeSource()
    ordinary, static = named(pod(), "ordinary", "u-ordinary"), named(pod(), "static", "u-static")
    world.use(FakeSource(ordinary, name=podspec.API), files)
    await world.start()
    await world.until(lambda: bool(world.registry.pods()))
    await world.until(lambda: world.status("ordinary").status.phase == "Running")
    files.set(static)
    await world.until(lambda: len(world.registry.pods()) == 2)
    await world.until(lambda: world.status("static").status.phase == "Running", within_s=60)
    ended = world.status("ordinary").status
    assert (ended.phase, ended.reason) == ("Failed", "Preempting")
    text = "Preempted in order to admit critical pod"
    assert [event for event in world.events if event[1] == "Preempting"] == [
        ("ordinary", "Preempting", text)
    ]
    assert "OutOfpods" not in world.reasons()


async def test_no_pod_ends_for_one_that_something_else_keeps_out(world: PodWorld) -> None:
    world.node = Node.from_wire({"status": {"allocatable": {"pods": "1"}}})
    files = FakeSource()
    ordinary = named(pod(), "ordinary", "u-ordinary")
    static = named(pod(nodeSelector={"disk": "ssd"}), "static", "u-static")
    world.use(FakeSource(ordinary, name=podspec.API), files)
    await world.start()
    await world.until(lambda: bool(world.registry.pods()))
    await world.until(lambda: world.status("ordinary").status.phase == "Running")
    files.set(static)
    await world.until(lambda: len(world.registry.pods()) == 2)
    await world.until(lambda: world.status("static").status.phase == "Failed")
    assert world.status("ordinary").status.phase == "Running"
