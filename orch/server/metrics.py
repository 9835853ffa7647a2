"""The server's own metrics: requests, storage and audit.

Labels come from what is served, never from a caller's text, so that no caller can grow them; the
children of each label set are looked up once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram

from orch.component.diagnostics.metrics import Registry
from orch.component.flags.stability import MetricPolicy
from orch.component.http.sliced_response import size_of
from orch.component.http.slow_clients import SlowClients
from orch.component.process.log import request_id
from orch.server.admission.pod_security.guard import Asked
from orch.server.admission.pod_security.levels import LATEST, PRIVILEGED, LevelVersion
from orch.server.asking import Unanswered
from orch.server.objects.document import Admission, Document, ObjectTarget, prefix_of
from orch.server.pressure import MemoryPressure
from orch.server.request.attributes import RequestInfo
from orch.server.storage.base import Storage
from orch.server.strategy.table import ServedKinds
from orch.wire.records.kinds import Resource

_OBJECTS_HELP = (
    "Number of stored objects at the time of last check split by kind. In case of a fetching error,"
    " the value will be -1."
)


class StorageMetrics:
    """`observe_etcd` may be called before storage is open; `observe` before a page is rendered."""

    def __init__(self, registry: Registry, buckets: Sequence[float]) -> None:
        self._objects: Gauge = registry.gauge(
            "apiserver_resource_objects",
            _OBJECTS_HELP,
            ("group", "resource"),
        )
        self._objects_by_old_name: Gauge = registry.gauge(
            "apiserver_storage_objects",
            _OBJECTS_HELP,
            ("resource",),
            deprecated="1.34.0",
        )
        self._shown: set[tuple[str, str, str]] = set()  # kinds that are on the page
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

    def observe(self, storage: Storage, kinds: ServedKinds, *, can_list: bool) -> None:
        """Set the counts of stored objects; call it on the loop's thread, before rendering.

        They are -1 where a list would fail. The size is read by the thread that renders, since it
        accesses the file system.
        """
        resources = [strategy.resource for strategy in kinds.stored]
        for gone in self._shown - {(r.group, r.plural, r.qualified) for r in resources}:
            self._objects.remove(*gone[:2])
            self._objects_by_old_name.remove(gone[2])
        self._shown = {(r.group, r.plural, r.qualified) for r in resources}
        for resource in resources:
            count = len(storage.list(prefix_of(resource)).items) if can_list else -1
            self._objects.labels(resource.group, resource.plural).set(count)
            self._objects_by_old_name.labels(resource.qualified).set(count)
        self._size.set_function(storage.size_bytes)


_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT",
    "patch": "PATCH", "apply": "APPLY", "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
    "post": "POST", "put": "PUT", "head": "HEAD", "options": "OPTIONS",
}  # fmt: skip
_BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
    45, 60,
)  # fmt: skip
_SIZE_BUCKETS = tuple(float(10**n) for n in range(3, 10))
_SIZED = ("get", "list")
_NOT_HANDLED = (401, 403, 429)
_KINDS_MAX = 2048  # label sets to cache: callers can send anything
_KEY_CHARS = 256  # of a path whose labels are cached
_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope", "component")

Labels = tuple[str, ...]
_Asked = tuple[str, str, str, str, str]  # verb, group, version, resource, subresource


class PodSecurityMetrics:
    """The `Counts` of pod security; `newest` is this server's minor version."""

    def __init__(self, registry: Registry, newest: int) -> None:
        self._newest = newest
        asked = ("request_operation", "resource", "subresource")
        self._evaluations: Counter = registry.counter(
            "pod_security_evaluations_total",
            "Number of policy evaluations that occurred, not counting ignored or exempt requests.",
            ("decision", "policy_level", "policy_version", "mode", *asked),
        )
        self._exemptions: Counter = registry.counter(
            "pod_security_exemptions_total",
            "Number of exempt requests, not counting ignored or out of scope requests.",
            asked,
        )
        self._errors: Counter = registry.counter(
            "pod_security_errors_total",
            "Number of errors preventing normal evaluation. Non-fatal errors may result in the"
            " latest restricted profile being used for evaluation.",
            ("fatal", *asked),
        )

    def evaluated(self, decision: str, policy: LevelVersion, mode: str, asked: Asked) -> None:
        version = policy.version
        if policy.level == PRIVILEGED:
            version = "latest"
        elif self._newest < policy.minor < LATEST:
            version = "future"
        self._evaluations.labels(decision, policy.level, version, mode, *asked).inc()

    def exempted(self, asked: Asked) -> None:
        self._exemptions.labels(*asked).inc()

    def failed(self, asked: Asked) -> None:
        self._errors.labels("false", *asked).inc()


_ADMISSION_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_AUTHENTICATION = ("authentication", "authentication_attempts", ("success", "failure", "error"))
_AUTHORIZATION = (
    "authorization",
    "authorization_attempts_total",
    ("allowed", "denied", "no-opinion"),
)
_ATTEMPT_BUCKETS = tuple(0.001 * 2**step for step in range(15))


class Attempts(NamedTuple):
    """How often authentication or authorization came to a result, and how long that took."""

    attempts: Counter
    duration: Histogram


def _attempts(
    registry: Registry, what: str, name: str, results: Sequence[str]
) -> Mapping[str, Attempts]:
    """By result; looked up once, because every request counts."""
    text = f"Counter of {what} attempts broken down by result."
    count = registry.counter(name, text, ("result",))
    text = f"{what.capitalize()} duration in seconds broken out by result."
    name = f"{what}_duration_seconds"
    duration = registry.histogram(name, text, ("result",), buckets=_ATTEMPT_BUCKETS)
    return {one: Attempts(count.labels(one), duration.labels(one)) for one in results}


class AdmissionMetrics:
    """How long the steps of admission take, each and together."""

    def __init__(self, registry: Registry) -> None:
        asked = ("operation", "rejected", "type")
        self._steps: Histogram = registry.histogram(
            "apiserver_admission_step_admission_duration_seconds",
            "Admission sub-step latency histogram in seconds, broken out for each operation and API"
            " resource and step type (validate or admit).",
            asked,
            buckets=_ADMISSION_BUCKETS,
        )
        self._controllers: Histogram = registry.histogram(
            "apiserver_admission_controller_admission_duration_seconds",
            "Admission controller latency histogram in seconds, identified by name and broken out"
            " for each operation and API resource and type (validate or admit).",
            ("name", *asked),
            buckets=_ADMISSION_BUCKETS,
        )
        self._children = cache(self._make_child)

    def timed(self, steps: Sequence[Admission]) -> Admission:
        """The steps as one that is timed, and each of them."""
        return _Timed(steps, self._children)

    def _make_child(self, step: str, *asked: str) -> Histogram:
        """That of a step, by its name, or of all together ("")."""
        labels = (*asked, "validate")
        return self._controllers.labels(step, *labels) if step else self._steps.labels(*labels)


class _Timed(NamedTuple):
    steps: Sequence[Admission]
    durations: Callable[[str, str, str], Histogram]

    def judges(self, resource: Resource) -> bool:
        return any(step.judges(resource) for step in self.steps)

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        asked, name = "CREATE" if old is None else "UPDATE", ""
        began_s = last_s = time.perf_counter()
        try:
            for step in self.steps:
                name, last_s = type(step).__name__, time.perf_counter()
                step.check(target, new, old)
                self.durations(name, asked, "false").observe(time.perf_counter() - last_s)
        except Unanswered:
            raise  # it will be checked again
        except Exception:
            self.durations(name, asked, "true").observe(time.perf_counter() - last_s)
            self.durations("", asked, "true").observe(time.perf_counter() - began_s)
            raise
        self.durations("", asked, "false").observe(time.perf_counter() - began_s)


class ServerMetrics:
    """One page; other parts add their metrics to `registry`."""

    def __init__(
        self, policy: MetricPolicy | None = None, kinds: ServedKinds | None = None
    ) -> None:
        self._kinds = kinds or ServedKinds()
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
        self._sizes: Histogram = self.registry.histogram(
            "apiserver_response_sizes",
            "Response size distribution in bytes for each group, version, verb, resource,"
            " subresource, scope and component.",
            _REQUEST,
            buckets=_SIZE_BUCKETS,
        )
        self._watch_events: Counter = self.registry.counter(
            "apiserver_watch_events_total",
            "Number of events sent in watch clients.",
            ("group", "version", "resource"),
        )
        self._deprecated: Gauge = self.registry.gauge(
            "apiserver_requested_deprecated_apis",
            "Gauge of deprecated APIs that have been requested, broken out by API group, version,"
            " resource, subresource, and removed_release.",
            ("group", "version", "resource", "subresource", "removed_release"),
        )
        self.audit_events: Counter = self.registry.counter(
            "apiserver_audit_event_total", "Counter of audit events generated."
        )
        self.audit_levels: Counter = self.registry.counter(
            "apiserver_audit_level_total", "Counter of policy levels for audit events.", ("level",)
        )
        self.audit_errors: Counter = self.registry.counter(
            "apiserver_audit_error_total",
            "Counter of audit events that failed to be audited properly.",
            ("plugin",),
        )
        self.authentications = _attempts(self.registry, *_AUTHENTICATION)
        self.authorizations = _attempts(self.registry, *_AUTHORIZATION)
        self.storage = StorageMetrics(self.registry, _BUCKETS)
        self.admission = AdmissionMetrics(self.registry)
        self._children = lru_cache(maxsize=_KINDS_MAX)(self._make_children)

    def add_memory(self, pressure: MemoryPressure, slow: SlowClients) -> None:
        """Show these two, whose figures are read when the page is rendered."""
        shown: dict[str, tuple[str, Callable[[], float]]] = {
            "apiserver_memory_used_bytes": (
                "Memory in use, without what the kernel can take back.",
                lambda: pressure.used_bytes,
            ),
            "apiserver_memory_limit_bytes": (
                "Memory at 80 percent of which the server begins to refuse requests.",
                lambda: pressure.limit_bytes,
            ),
            "apiserver_unread_answer_bytes": (
                "Bytes that wait for clients which do not take their answers.",
                lambda: slow.waiting_bytes,
            ),
        }
        for name, (text, read) in shown.items():
            self.registry.gauge(name, text).set_function(read)
        self.registry.counter_of(
            "apiserver_memory_refused_requests_total",
            "Requests refused because memory was short.",
            lambda: pressure.refused,
        )
        self.registry.counter_of(
            "apiserver_slow_clients_cut_total",
            "Connections cut because their client did not take its answer.",
            lambda: slow.cut,
        )

    def observe(
        self,
        info: RequestInfo,
        *,
        dry_run: bool,
        code: int,
        seconds: float,
        response: web.StreamResponse | None = None,
    ) -> None:
        """Count a request; without a response the client has left."""
        few = len(info.path) <= _KEY_CHARS
        total, duration, sizes = (self._children if few else self._make_children)(
            (info.verb, info.group, info.version, info.resource, info.subresource),
            _scope_of(info), code, dry_run, info.is_long_running, self._kinds.changes,
        )  # fmt: skip
        total.inc()
        if duration is not None:
            duration.observe(seconds, {"request_id": request_id.get()})  # leads to the log
        if sizes is not None and (size := size_of(response)) is not None:
            sizes.observe(size)

    def _make_children(
        self, asked: _Asked, scope: str, code: int, dry_run: bool, long_running: bool, _: int, /
    ) -> tuple[Counter, Histogram | None, Histogram | None]:
        """The counter, duration and size of one kind of request."""
        labels = _labels(asked, scope, self._kinds)
        strategy = self._kinds.find(*asked[1:4])
        if strategy is not None and strategy.deprecation and code not in _NOT_HANDLED:
            self._deprecated.labels(*labels[1:5], "").set(1)
        dry = "All" if dry_run else ""
        sized = asked[0] in _SIZED and not long_running
        return (
            self._total.labels(*labels, dry, str(code)),
            None if long_running else self._duration.labels(*labels, dry),
            self._sizes.labels(*labels) if sized else None,
        )

    def watch_events(self, info: RequestInfo) -> Counter:
        """The counter of events that watches of that kind have sent."""
        return self._watch_events.labels(*request_labels(info, self._kinds)[1:4])

    def long_running(self, info: RequestInfo) -> Gauge:
        return self._longrunning.labels(*request_labels(info, self._kinds))


def request_labels(info: RequestInfo, kinds: ServedKinds) -> Labels:
    """The labels of a request; everything that is not served shares one set."""
    asked = (info.verb, info.group, info.version, info.resource, info.subresource)
    return _labels(asked, _scope_of(info), kinds)


def _scope_of(info: RequestInfo) -> str:
    return "resource" if info.name else "namespace" if info.namespace else "cluster"


def _labels(asked: _Asked, scope: str, kinds: ServedKinds) -> Labels:
    verb = _VERBS.get(asked[0], "OTHER")
    strategy = kinds.find(*asked[1:4])
    if strategy is None:
        return (verb, "", "", "", "", "", "apiserver")
    resource = strategy.resource
    known = asked[4] if asked[4] in resource.subresources else ""
    return (verb, resource.group, resource.version, resource.plural, known, scope, "apiserver")
