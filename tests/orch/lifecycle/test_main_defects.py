"""The whole controller manager with a defect in a part of it."""

from __future__ import annotations

import pytest

from orch.lifecycle.binding.binder import Binder
from tests.orch.lifecycle.test_main import World, identities, is_ready, until, world

__all__ = ["identities", "world"]  # fixtures

pytestmark = pytest.mark.slow


async def test_a_binder_with_a_defect_costs_only_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_self: Binder) -> None:
        raise KeyError("odd")

    monkeypatch.setattr(Binder, "run", fail)
    await world.start_controller("--leader-elect=false", "--bind-pods")
    await until(lambda: "the binding of pods is interrupted" in caplog.text)
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))
    await world.silence("n1")
    await until(lambda: is_ready(world, "n1", "Unknown"))
