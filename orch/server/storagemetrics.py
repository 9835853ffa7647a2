"""What the metrics page says about storage: how much there is, and how etcd answers."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from orch.component.metrics import Registry
from orch.server.resources.document import prefix_of
from orch.server.storage.base import Storage
from orch.wire.kinds import RESOURCES


class StorageMetrics:
    """`observe_etcd` may be called before storage is open; `observe` before a page is rendered."""

    def __init__(self, registry: Registry, buckets: Sequence[float]) -> None:
        self._objects: Gauge = registry.gauge(
            "apiserver_resource_objects",
            "Number of stored objects at the time of last check split by kind.",
            ("group", "resource"),
        )
        self._objects_by_old_name: Gauge = registry.gauge(
            "apiserver_storage_objects",
            "Number of stored objects at the time of last check split by kind.",
            ("resource",),
            deprecated="1.34.0",
        )
        self._size: Gauge = registry.gauge(
            "apiserver_storage_size_bytes",
            "Size of the storage database file physically allocated in bytes.",
        )
        self._etcd_requests: Counter = registry.counter(
            "etcd_requests_total", "Etcd request counts for each operation.", ("operation",)
        )
        self._etcd_errors: Counter = registry.counter(
            "etcd_request_errors_total",
            "Etcd failed request counts for each operation.",
            ("operation",),
        )
        self._etcd_duration: Histogram = registry.histogram(
            "etcd_request_duration_seconds",
            "Etcd request latency in seconds for each operation.",
            ("operation",),
            buckets=buckets,
        )

    def observe_etcd(self, operation: str, seconds: float, failed: bool) -> None:
        """Count a call of etcd."""
        self._etcd_requests.labels(operation).inc()
        self._etcd_duration.labels(operation).observe(seconds)
        if failed:
            self._etcd_errors.labels(operation).inc()

    def observe(self, storage: Storage) -> None:
        """What is stored now; on the loop's thread, before a page is rendered on another.

        The size is read by the thread that renders: it takes a look at the file system.
        """
        for resource in filter(lambda one: one.is_stored, RESOURCES):
            count = len(storage.list(prefix_of(resource)).items)
            self._objects.labels(resource.group, resource.plural).set(count)
            self._objects_by_old_name.labels(
                f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            ).set(count)
        self._size.set_function(storage.size_bytes)
