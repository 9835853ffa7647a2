"""Which pods are removed while their sources are still being read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from orch.wire.records.pods import Pod
from tests.fakes.pods import pod
from tests.fakes.podworld import FakeSource, PodWorld

pytestmark = pytest.mark.looptime


async def test_a_source_read_during_a_look_at_the_pods_removes_none(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for is from before the source was read, and says nothing yet."""
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
        late.set(pod())
        late.ready = True

    with monkeypatch.context() as patched:
        patched.setattr(heir.registry, "set_desired", read_meanwhile)
        patched.setattr(heir.registry, "listed", True)
        await heir.workers._reconcile()
    assert not heir.workers._workers
    await heir.start(pod())
    await asyncio.sleep(30)
    assert heir.running() == before
