from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orch.component import clock
from tests.orch.server.harness import Api, Pki, make_pki


@pytest.fixture(scope="session")
def server_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), clock.utc_now())


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with an empty store."""
    api = await Api.start(server_pki, tmp_path / "data")
    yield api
    await api.stop()
