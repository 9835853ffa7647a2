"""The registry's answers about pods: what there is to measure, what may have processes."""

from __future__ import annotations

import pytest

from nodeagent.pods.registry import PodRegistry, first_of_each
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerState
from orch.wire.records.pods import Pod, PodStatus
from tests.fakes.pods import UID, exited, instance, pod, seen
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


async def test_the_targets_of_a_pod_at_rest_are_made_once(world: PodWorld) -> None:
    await world.start(pod("a", "b"))
    await world.until(lambda: world.status().status.phase == "Running")
    (first,), (second,) = world.registry.targets(), world.registry.targets()
    assert first is second
    world.runtime.exit(world.made("a").detail.container.id)
    await world.until(lambda: world.made("a").state.value == "running")
    (third,) = world.registry.targets()
    assert third != first
    world.source.set()
    await world.until(lambda: not world.traces())
    assert world.registry.targets() == []


def test_containers_of_unknown_state_are_told_apart_from_those_that_run() -> None:
    registry = PodRegistry(PodSettings("n1", "/root-dir", "/logs"))
    lost = instance("lost", state=ContainerState.UNKNOWN)
    registry.set_view(seen(instance("app"), lost, exited("ended")))

    assert {one.name for one in registry.active_containers(only_unknown=False)} == {"app", "lost"}
    assert [one.name for one in registry.active_containers(only_unknown=True)] == ["lost"]


def test_which_pods_live_is_unknown_until_every_source_was_read() -> None:
    registry = PodRegistry(PodSettings("n1", "/root-dir", "/logs"))
    registry.set_desired([pod()], complete=False)
    assert registry.live_uids() is None
    registry.set_desired([pod()])
    assert registry.live_uids() == {UID}


def test_a_pod_has_ended_once_its_status_is_final() -> None:
    registry = PodRegistry(PodSettings("n1", "/root-dir", "/logs"))
    registry.set_desired([pod()])
    assert not registry.has_ended(UID)
    for phase, ended in (("Pending", False), ("Running", False), ("Failed", True)):
        registry.set_status(UID, PodStatus(phase=phase))
        assert registry.has_ended(UID) is ended


def one(name: str, uid: str) -> Pod:
    return pod(metadata={"name": name, "uid": uid})


def test_the_first_pod_of_a_name_and_of_a_uid_counts() -> None:
    first, namesake, twin, other = one("a", "1"), one("a", "2"), one("b", "1"), one("b", "2")
    kept, refused = first_of_each([first, namesake, twin, other])
    assert kept == [first, other]
    assert [text.partition("; ")[0].rpartition(" the same ")[2] for text in refused] == [
        "name", "uid",
    ]  # fmt: skip
