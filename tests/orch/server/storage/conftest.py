from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.orch.server.storage.etcdserver import EtcdServer, running_etcd


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """One etcd for all tests that only need a prefix of their own."""
    with running_etcd() as server:
        yield server
