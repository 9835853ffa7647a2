from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc.aio
import pytest

from tests.orch.server.storage.etcdserver import EtcdServer, running_etcd


@contextmanager
def grpc_kept() -> Iterator[None]:
    """gRPC's thread stays: who drops the last channel would wait for its end, in the loop."""
    grpc.aio.init_grpc_aio()
    try:
        yield
    finally:
        grpc.aio.shutdown_grpc_aio()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """One etcd for all tests that only need a prefix of their own."""
    with running_etcd() as server, grpc_kept():
        yield server
