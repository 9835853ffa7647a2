"""Whether pods end in order at a shutdown: by the configuration, and only where there are pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.wiring import node
from orch.component.process.daemon import SetupError
from tests.fakes.podworld import PodWorld


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[PodWorld]:
    world = PodWorld(tmp_path)
    yield world
    await world.stop()


def guard(world: PodWorld, *, pods: bool = True, **fields: object) -> ShutdownGuard | None:
    return node.build_guard(
        NodeAgentConfiguration.model_validate(
            {
                "apiVersion": "nodeagent.config.orch.io/v1beta1",
                "kind": "NodeAgentConfiguration",
                **fields,
            }
        ),
        world.registry,
        world.workers if pods else None,
        changed=lambda: None,
        note=lambda _reason, _text: None,
    )


async def test_it_is_off_unless_asked_for_and_without_a_runtime(world: PodWorld) -> None:
    assert guard(world) is None
    assert guard(world, shutdownGracePeriod="30s") is not None
    assert guard(world, pods=False, shutdownGracePeriod="30s") is None


async def test_settings_that_contradict_each_other_keep_the_agent_from_starting(
    world: PodWorld,
) -> None:
    with pytest.raises(SetupError, match="must not exceed shutdownGracePeriod"):
        guard(world, shutdownGracePeriod="3s", shutdownGracePeriodCriticalPods="4s")


async def test_without_a_runtime_nobody_is_evicted() -> None:
    config = NodeAgentConfiguration()
    nothing: dict[str, None] = dict.fromkeys(("status", "sampler", "registry", "events"))
    built = node.build_evictions(config, workers=None, **nothing)  # type: ignore[arg-type]
    assert built is None
