"""Handlers of runtime classes, from an API in memory."""

from __future__ import annotations

import pytest

from nodeagent.pods.runtime_classes import RuntimeClasses
from nodeagent.pods.spec.env import SpecError
from orch.client.transport import TransportError
from orch.wire.records.configuration import RuntimeClass
from orch.wire.records.meta import ObjectMeta
from tests.fakes.pods import pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime

VM = pod(runtimeClassName="vm")


def vm_class(handler: str = "runc") -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name="vm"), handler=handler)


async def test_a_pod_runs_by_the_handler_of_its_class(world: PodWorld) -> None:
    await world.api.create(vm_class())
    await world.start(VM)
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.sandboxes.values()
    assert made.spec.runtime_handler == "runc"


async def test_a_class_that_is_not_there_is_told_and_waited_for(world: PodWorld) -> None:
    await world.start(VM)
    await world.until(lambda: "FailedCreatePodSandBox" in world.reasons())
    text = (
        'Failed to create pod sandbox: failed to get RuntimeClass vm: runtimeclass "vm" not found'
    )
    assert ("web", "FailedCreatePodSandBox", text) in world.events
    assert not world.runtime.sandboxes
    await world.api.create(vm_class())
    await world.until(lambda: "app" in world.running(), within_s=120)


async def test_a_handler_that_the_runtime_does_not_have_is_named(world: PodWorld) -> None:
    await world.api.create(vm_class("kata"))
    await world.start(VM)
    await world.until(lambda: "FailedCreatePodSandBox" in world.reasons())
    text = "the runtime has no handler 'kata'; it has runc"
    text = f"Failed to create pod sandbox: spec.runtimeClassName: {text}"
    assert ("web", "FailedCreatePodSandBox", text) in world.events


async def test_a_class_that_was_read_counts_while_the_api_is_away(world: PodWorld) -> None:
    classes = RuntimeClasses(world.api)  # type: ignore[arg-type]
    await world.api.create(vm_class())
    assert await classes.handler_of(VM) == "runc"
    world.api.fail(TransportError("refused"))
    assert await classes.handler_of(VM) == "runc"
    with pytest.raises(SpecError, match="failed to get RuntimeClass other: "):
        world.api.fail(TransportError("refused"))
        await classes.handler_of(pod(runtimeClassName="other"))


async def test_without_an_api_the_name_is_the_handler() -> None:
    classes = RuntimeClasses(None)
    assert await classes.handler_of(VM) == "vm"
    assert await classes.handler_of(pod()) == ""
