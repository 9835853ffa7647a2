from __future__ import annotations

import itertools
import os
import resource
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orch.component.process import clock
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import ObjectTarget
from orch.server.objects.options import WriteOptions
from orch.server.storage.group_commit import GroupCommitStorage
from orch.server.strategy import namespaces
from orch.wire.records.authentication import Identity
from tests.fakes.medium import FakeMedium
from tests.orch.server.harness import Api, Pki, make_pki

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where that is possible: each test here would wait for the disk many times."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def medium() -> FakeMedium:
    return FakeMedium()


@pytest.fixture
async def backend(medium: FakeMedium) -> AsyncIterator[Backend]:
    """Storage in memory with the namespace `default`, a clock that stands, uids uid-1, uid-2, …"""
    storage = GroupCommitStorage(medium)
    await storage.open()
    numbers = itertools.count(1)
    backend = Backend(
        storage,
        now=lambda: NOW,
        new_uid=lambda: f"uid-{next(numbers)}",
        new_suffix=lambda: "abcde",
    )
    target = ObjectTarget(namespaces.STRATEGY, Identity("admin"), name="default")
    await create(backend, target, {"metadata": {"name": "default"}}, WriteOptions())
    yield backend
    await storage.close()


@pytest.fixture(scope="session")
def server_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), clock.utc_now())


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with an empty store."""
    api = await Api.start(server_pki, tmp_path / "data")
    yield api
    await api.stop()


@pytest.fixture
def same_file_limit() -> Iterator[None]:
    """What a server that starts does to the limit of open files is undone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
