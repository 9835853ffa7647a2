"""The server's own metrics: requests, how long they took, how many are under way.

Labels come from what is served, never from what a caller wrote, so that no caller can grow them;
the children of each label set are looked up once.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from orch.component.features import Features
from orch.component.metrics import Registry
from orch.component.stability import MetricPolicy
from orch.server.requestinfo import RequestInfo
from orch.server.resources.document import prefix_of
from orch.server.storage.base import Storage
from orch.server.strategy.table import find_strategy
from orch.wire.kinds import RESOURCES
from orch.wire.version import MAJOR, MINOR, VERSION

_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT",
    "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
    "post": "POST", "put": "PUT", "head": "HEAD", "options": "OPTIONS",
}  # fmt: skip
_BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
    45, 60,
)  # fmt: skip
_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope", "component")

Labels = tuple[str, ...]


class ServerMetrics:
    """One page; `registry` also takes what other parts add."""

    def __init__(self, features: Features, policy: MetricPolicy | None = None) -> None:
        self.registry = Registry(policy)
        self.registry.add_process_metrics()
        self._total: Counter = self.registry.counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, group, version, resource,"
            " scope, component, and HTTP response code.",
            (*_REQUEST, "dry_run", "code"),
        )
        self._duration: Histogram = self.registry.histogram(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, group, version, resource,"
            " subresource, scope and component.",
            (*_REQUEST, "dry_run"),
            buckets=_BUCKETS,
        )
        self.inflight: Gauge = self.registry.gauge(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver per"
            " request kind in last second.",
            ("request_kind",),
        )
        self._longrunning: Gauge = self.registry.gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group,"
            " version, resource, scope and component.",
            _REQUEST,
        )
        self._objects: Gauge = self.registry.gauge(
            "apiserver_resource_objects",
            "Number of stored objects at the time of last check split by kind.",
            ("group", "resource"),
        )
        self._size: Gauge = self.registry.gauge(
            "apiserver_storage_size_bytes",
            "Size of the storage database file physically allocated in bytes.",
        )
        self._etcd_requests: Counter = self.registry.counter(
            "etcd_requests_total", "Etcd request counts for each operation.", ("operation",)
        )
        self._etcd_errors: Counter = self.registry.counter(
            "etcd_request_errors_total",
            "Etcd failed request counts for each operation.",
            ("operation",),
        )
        self._etcd_duration: Histogram = self.registry.histogram(
            "etcd_request_duration_seconds",
            "Etcd request latency in seconds for each operation.",
            ("operation",),
            buckets=_BUCKETS,
        )
        self._describe(features)
        self._totals: dict[tuple[Labels, int], Counter] = {}
        self._durations: dict[Labels, Histogram] = {}

    def _describe(self, features: Features) -> None:
        """What never changes while the program runs: its version and its features."""
        build = self.registry.gauge(
            "orch_build_info", "The version that runs.", ("major", "minor", "git_version")
        )
        build.labels(MAJOR, MINOR, VERSION).set(1)
        enabled = self.registry.gauge(
            "orch_feature_enabled",
            "1 for a feature that is on, 0 for one that is off.",
            ("name", "stage"),
        )
        for gate, on in features.all():
            enabled.labels(gate.name, gate.stage.value).set(int(on))

    def observe(self, info: RequestInfo, *, dry_run: bool, code: int, seconds: float) -> None:
        """Count an answered request."""
        labels = (*request_labels(info), "All" if dry_run else "")
        total = self._totals.get((labels, code))
        if total is None:
            total = self._totals[labels, code] = self._total.labels(*labels, str(code))
        total.inc()
        if info.is_long_running:
            return
        duration = self._durations.get(labels)
        if duration is None:
            duration = self._durations[labels] = self._duration.labels(*labels)
        duration.observe(seconds)

    def observe_etcd(self, operation: str, seconds: float, failed: bool) -> None:
        """Count a call of etcd."""
        self._etcd_requests.labels(operation).inc()
        self._etcd_duration.labels(operation).observe(seconds)
        if failed:
            self._etcd_errors.labels(operation).inc()

    def observe_storage(self, storage: Storage) -> None:
        """What is stored now; on the loop's thread, before a page is rendered on another.

        The size is read by the thread that renders: it takes a look at the file system.
        """
        for resource in (one for one in RESOURCES if one.is_stored):
            count = len(storage.list(prefix_of(resource)).items)
            self._objects.labels(resource.group, resource.plural).set(count)
        self._size.set_function(storage.size_bytes)

    def long_running(self, info: RequestInfo) -> Gauge:
        return self._longrunning.labels(*request_labels(info))


def request_labels(info: RequestInfo) -> Labels:
    """What a request is counted as; everything that is not served is one and the same."""
    verb = _VERBS.get(info.verb, "OTHER")
    if not info.is_resource:
        return (verb, "", "", "", "", "", "apiserver")
    strategy = find_strategy(info.group, info.version, info.resource)
    if strategy is None:
        return (verb, "", "", "", "", "", "apiserver")
    resource = strategy.resource
    known = info.subresource if info.subresource in resource.subresources else ""
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    return (
        verb, resource.group, resource.version, resource.plural, known, scope, "apiserver",
    )  # fmt: skip
