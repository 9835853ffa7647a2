"""What there is to measure, kept for as long as nothing changes."""

from __future__ import annotations

import pytest

from tests.fakes.pods import pod
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
