from __future__ import annotations

import asyncio

import pytest

from orch.component.diagnostics.metrics import Registry
from orch.server.metrics import StorageMetrics
from orch.server.objects.backend import Backend
from tests.fakes.medium import FakeMedium


def page(registry: Registry) -> list[str]:
    return registry.render("")[0].decode().splitlines()


async def test_objects_are_counted_by_kind_and_the_medium_measured(
    backend: Backend, medium: FakeMedium
) -> None:
    registry = Registry()
    metrics = StorageMetrics(registry, (1.0,))
    await backend.storage.create("/leases.coordination.orch.io/a/x", b"{}")
    metrics.observe(backend.storage, backend.kinds, can_list=True)
    shown = await asyncio.to_thread(page, registry)
    assert 'apiserver_resource_objects{group="",resource="namespaces"} 1.0' in shown
    assert 'apiserver_resource_objects{group="coordination.orch.io",resource="leases"} 1.0' in shown
    assert 'apiserver_resource_objects{group="",resource="pods"} 0.0' in shown
    assert f"apiserver_storage_size_bytes {float(medium.size_bytes())}" in shown
    assert not any("reviews" in line for line in shown)


async def test_what_cannot_be_listed_counts_as_minus_one(backend: Backend) -> None:
    registry = Registry()
    metrics = StorageMetrics(registry, (1.0,))
    for can_list, namespaces in ((True, "1.0"), (False, "-1.0"), (True, "1.0")):
        metrics.observe(backend.storage, backend.kinds, can_list=can_list)
        shown = await asyncio.to_thread(page, registry)
        assert f'apiserver_resource_objects{{group="",resource="namespaces"}} {namespaces}' in shown
        assert f'apiserver_storage_objects{{resource="namespaces"}} {namespaces}' in shown


@pytest.mark.parametrize(("failed", "errors"), [(False, 0), (True, 1)])
def test_calls_of_etcd_are_counted_and_timed(failed: bool, errors: int) -> None:
    registry = Registry()
    StorageMetrics(registry, (1.0,)).observe_etcd("update", 0.5, failed)
    shown = page(registry)
    assert 'etcd_requests_total{operation="update"} 1.0' in shown
    assert 'etcd_request_duration_seconds_bucket{le="1.0",operation="update"} 1.0' in shown
    told = [line for line in shown if line.startswith("etcd_request_errors_total{")]
    assert told == ['etcd_request_errors_total{operation="update"} 1.0'] * errors
