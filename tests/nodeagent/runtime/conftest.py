"""An adapter before a fake server, and the runtimes of the contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.runtime.cri import CriRuntime
from tests.conftest_runtime import RealRuntime
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime
from tests.nodeagent.runtime.contract import Subject, fake_runtime


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CriServer]:
    server = CriServer(FakeRuntime(), tmp_path / "cri.sock")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def runtime(server: CriServer) -> AsyncIterator[CriRuntime]:
    runtime = CriRuntime(server.endpoint, timeout_s=120)
    yield runtime
    await runtime.close()


@pytest.fixture(params=["fake", "cri", pytest.param("containerd", marks=pytest.mark.real)])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "fake":
        fake = fake_runtime()
        yield Subject(fake, fake, tmp_path)
    elif request.param == "cri":
        server = CriServer(fake_runtime(), tmp_path / "cri.sock")
        await server.start()
        runtime = CriRuntime(server.endpoint)
        yield Subject(runtime, server.runtime, tmp_path)
        await runtime.close()
        await server.stop()
    else:
        real: RealRuntime = request.getfixturevalue("real_runtime")
        tested = Subject(CriRuntime(real.endpoint), None, tmp_path)
        try:
            yield tested
        finally:
            await tested.clean()
            await tested.runtime.close()
