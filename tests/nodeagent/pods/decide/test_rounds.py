"""Rules that restart all containers of a pod (K:pkg/kubelet/kuberuntime, RestartAllContainers)."""

from __future__ import annotations

import asyncio

import pytest

from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
OWN = {"restartPolicy": "Never", "restartPolicyRules": [RULE]}


def ruled(**spec: object) -> Pod:
    return pod(
        container_data("app", **OWN),
        container_data("helper"),
        initContainers=[
            container_data("setup"),
            container_data("sidecar", restartPolicy="Always"),
        ],
        restartPolicy="Never",
        **spec,
    )


async def started(world: PodWorld, before: dict[str, str]) -> dict[str, str]:
    """The containers that run once the init container has done its work, all other than before."""

    def has_new(name: str) -> bool:
        return world.running().get(name, before.get(name)) != before.get(name)

    await world.until(lambda: has_new("setup"), within_s=60)
    assert set(world.running()) == {"setup"}, "the others have stopped, and wait for it"
    world.runtime.exit(world.running()["setup"], 0)
    await world.until(
        lambda: all(has_new(name) for name in ("sidecar", "app", "helper")), within_s=60
    )
    return world.running()


def restarting(world: PodWorld) -> str:
    conditions = world.status().status.conditions or []
    return next(c.status for c in conditions if c.type == "AllContainersRestarting")


def counts(world: PodWorld) -> dict[str, int]:
    status = world.status().status
    both = (*(status.initContainerStatuses or ()), *(status.containerStatuses or ()))
    return {each.name: each.restartCount for each in both}


async def test_an_end_that_fits_the_rule_restarts_all_in_their_order(world: PodWorld) -> None:
    await world.start(ruled())
    first = await started(world, {})
    sandboxes = [
        s.sandbox.id for s in world.registry.view(world.status().metadata.uid or "").sandboxes
    ]
    world.runtime.exit(first["app"], 42)
    second = await started(world, first)
    assert set(second) == {"sidecar", "app", "helper"}
    await world.until(lambda: set(counts(world).values()) == {1})
    assert restarting(world) == "False" and world.status().status.phase == "Running"
    view = world.registry.view(world.status().metadata.uid or "")
    assert [s.sandbox.id for s in view.sandboxes] == sandboxes, "in the same sandbox"
    world.runtime.exit(second["app"], 42)
    await started(world, second)
    await world.until(lambda: set(counts(world).values()) == {2})


async def test_any_other_end_restarts_none(world: PodWorld) -> None:
    await world.start(ruled())
    first = await started(world, {})
    world.runtime.exit(first["app"], 41)
    await asyncio.sleep(60)
    assert set(world.running()) == {"sidecar", "helper"}
    assert restarting(world) == "False"


async def test_a_restarted_agent_goes_on(world: PodWorld) -> None:
    await world.start(ruled())
    first = await started(world, {})
    world.runtime.exit(first["app"], 42)
    await world.until(
        lambda: world.running().get("setup", first.get("setup")) is not None, within_s=60
    )
    half_way = world.running()["setup"]
    await world.stop()
    successor = world.successor()
    await successor.start(ruled())
    await successor.until(lambda: "setup" in successor.running())
    assert successor.running()["setup"] == half_way, "nothing is begun again"
    successor.runtime.exit(half_way, 0)
    await successor.until(lambda: {"app", "helper"} <= set(successor.running()), within_s=60)
    assert not set(first.values()) & set(successor.running().values())
    await asyncio.sleep(120)
    assert set(successor.running()) == {"sidecar", "app", "helper"}
    await successor.stop()


async def test_an_init_container_may_restart_all_too(world: PodWorld) -> None:
    first, second = container_data("one"), container_data("two", **OWN)
    await world.start(pod(container_data("app"), initContainers=[first, second]))
    await world.until(lambda: "one" in world.running())
    world.runtime.exit(world.running()["one"], 0)
    await world.until(lambda: "two" in world.running())
    world.runtime.exit(world.running()["two"], 42)
    await world.until(lambda: "one" in world.running(), within_s=60)
    assert world.status().status.phase == "Pending"
