from __future__ import annotations

import asyncio

import pytest

from orch.component.diagnostics.health import CheckFailed
from orch.server.objects.backend import Backend
from orch.server.storage import health as health_module
from orch.server.storage.base import StorageFailed
from orch.server.storage.health import StorageHealth
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
    with pytest.raises(CheckFailed, match="storage takes no writes: the disk is full"):
        health.check()
    medium.failing = None
    await health.look()
    health.check()


async def test_storage_that_takes_no_writes_is_said_once_and_so_is_its_return(
    backend: Backend, medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    health = StorageHealth(backend.storage)
    await health.look()
    for failure in ("the disk is full", "no commit within 5 s"):
        medium.failing = StorageFailed(failure)
        await health.look()
    medium.failing = None
    await health.look()
    await health.look()
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "storage takes no writes: the disk is full",
        "storage takes no writes: no commit within 5 s",
        "storage takes writes again",
    ]


async def test_storage_that_does_not_answer_at_all_is_not_ready_in_time(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "LOOK_TIMEOUT_S", 0.01)
    monkeypatch.setattr(backend.storage, "check", asyncio.Event().wait)
    health = StorageHealth(backend.storage)
    async with asyncio.timeout(30):
        await health.look()
    with pytest.raises(CheckFailed, match="storage takes no writes: no answer within"):
        health.check()
