from __future__ import annotations

import pytest

from orch.component.health import CheckFailed
from orch.server.resources.backend import Backend
from orch.server.storage.base import StorageFailed
from orch.server.storagehealth import StorageHealth
from tests.fakes.medium import FakeMedium


async def test_the_verdict_is_that_of_the_last_round(backend: Backend, medium: FakeMedium) -> None:
    health = StorageHealth(backend.storage)
    with pytest.raises(CheckFailed):
        health.check()
    await health.look()
    health.check()
    medium.failing = StorageFailed("the disk is full")
    health.check()
    await health.look()
    with pytest.raises(CheckFailed, match="the disk is full"):
        health.check()
    medium.failing = None
    await health.look()
    health.check()
