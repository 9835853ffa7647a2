"""Which pods are removed while their sources are still being read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from orch.wire.records.pods import Pod
from tests.fakes.pods import pod
from tests.fakes.podworld import FakeSource, PodWorld

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

    def read_meanwhile(pods: Iterable[Pod], *, complete: bool) -> None:
        real(pods, complete=complete)
        if heir.registry.listed:
            late.given = [pod()]
            late.ready = True

    monkeypatch.setattr(heir.registry, "set_desired", read_meanwhile)
    await heir.start()
    await heir.until(lambda: late.ready)
    await asyncio.sleep(30)
    assert [pod.key for pod in heir.registry.pods()] == ["default/web"]
    assert heir.running() == before
