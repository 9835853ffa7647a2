"""A node's pods on a runtime in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.fakes.podworld import PodWorld


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[PodWorld]:
    world = PodWorld(tmp_path)
    yield world
    await world.stop()
