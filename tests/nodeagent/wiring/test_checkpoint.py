"""Which parts an agent has for checkpoints, and how they are connected to the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.config.types import CheckpointPolicy, NodeAgentConfiguration
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerState
from nodeagent.stats.sampler import Sampler
from nodeagent.wiring import checkpoint
from orch.component.flags.features import Features
from orch.component.process.daemon import SetupError
from tests.fakes import hosts
from tests.fakes.checkpoints import checkpointable_node
from tests.fakes.pods import exited, instance, seen
from tests.fakes.runtime import FakeRuntime

ON, OFF = Features({}), Features({"ContainerCheckpoint": False})


@pytest.fixture
def registry(tmp_path: Path) -> PodRegistry:
    return PodRegistry(PodSettings("n1", str(tmp_path), str(tmp_path)))


def build(
    registry: PodRegistry,
    sampler: Sampler,
    *,
    policy: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 — a frozen record
    features: Features = ON,
    runtime: FakeRuntime | None = None,
) -> checkpoint.Checkpoints | None:
    config = NodeAgentConfiguration(checkpoint=policy)
    return checkpoint.build(config, features, registry, runtime, sampler, None, lambda: 0.0)


async def test_without_a_runtime_or_the_feature_there_are_none(
    registry: PodRegistry, sampler: Sampler
) -> None:
    assert build(registry, sampler) is None
    assert build(registry, sampler, features=OFF, runtime=FakeRuntime()) is None
    assert build(registry, sampler, runtime=FakeRuntime()) is not None


async def test_recipients_that_cannot_be_used_keep_the_agent_from_starting(
    registry: PodRegistry, sampler: Sampler
) -> None:
    policy = CheckpointPolicy.model_validate({"encryption": {"recipients": ["age1x"]}})

    with pytest.raises(SetupError, match=r"checkpoint\.encryption: 'age1x' is not an age"):
        build(registry, sampler, policy=policy, runtime=FakeRuntime())


async def test_the_store_is_bounded_by_the_configuration_and_its_excess_is_told(
    tmp_path: Path, registry: PodRegistry, sampler: Sampler
) -> None:
    node = await checkpointable_node(tmp_path)
    name = Path(await node.service().checkpoint("shop", "web", "app")).name
    node.index.pin(node.index.find(name))
    policy = CheckpointPolicy.model_validate({"maxTotal": "1", "minFree": "0", "maxAge": "0s"})
    built = build(registry, sampler, policy=policy, runtime=node.runtime)
    assert built
    assert built.excess_bytes() is None

    await built.pruner.step()
    assert built.excess_bytes() == (node.store / name).stat().st_size - 1
    node.index.unpin(node.index.find(name))
    await built.pruner.step()
    assert built.excess_bytes() == 0
    assert os.listdir(node.store) == []


async def test_the_memory_of_a_container_is_that_of_the_last_reading(sampler: Sampler) -> None:
    container = hosts.POD.containers[0]
    assert checkpoint.memory_of(sampler, container.id) == 0
    await sampler.fresh()
    assert checkpoint.memory_of(sampler, container.id) > 0
    assert checkpoint.memory_of(sampler, "absent") == 0


def test_containers_of_unknown_state_are_told_apart_from_those_that_run(
    registry: PodRegistry,
) -> None:
    lost = instance("lost", state=ContainerState.UNKNOWN)
    registry.set_view(seen(instance("app"), lost, exited("ended")))
    pods = checkpoint._KnownPods(registry)

    assert {one.name for one in pods.active_containers(only_unknown=False)} == {"app", "lost"}
    assert [one.name for one in pods.active_containers(only_unknown=True)] == ["lost"]
