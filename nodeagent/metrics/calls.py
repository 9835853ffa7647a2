"""Counts of calls: the agent's calls of the container runtime, and HTTP requests to the agent.

Names, labels and buckets of `runtime_operations_*` are the reference agent's. Labels of requests
come from a closed list, never from the caller's text (nodeagent.md §4.1); refused requests count.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

from aiohttp import web
from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from orch.component.diagnostics import metrics
from orch.component.diagnostics.metrics import Registry

_LABELS = ("operation_type",)
_BUCKETS_S = tuple(0.005 * 2.5**n for n in range(14))
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")
_SPECIAL = {"UpdateContainerResources": "update_container", "Resume": "resume_container"}


class RuntimeOperations(Collector):
    """A collector to register; a CriRuntime reports its calls to `observe`."""

    def __init__(self) -> None:
        self._calls = Counter(
            "nodeagent_runtime_operations_total",
            "[ALPHA] Calls of the container runtime, by operation.",
            _LABELS,
            registry=None,
        )
        self._failures = Counter(
            "nodeagent_runtime_operations_errors_total",
            "[ALPHA] Calls of the container runtime that failed, by operation.",
            _LABELS,
            registry=None,
        )
        self._durations = Histogram(
            "nodeagent_runtime_operations_duration_seconds",
            "[ALPHA] Duration of the calls of the container runtime, by operation.",
            _LABELS,
            registry=None,
            buckets=_BUCKETS_S,
        )

    def observe(self, operation: str, duration_s: float, failed: bool) -> None:
        """Count one call of the CRI method `operation`."""
        name = operation_type(operation)
        self._calls.labels(name).inc()
        self._durations.labels(name).observe(duration_s)
        if failed:
            self._failures.labels(name).inc()

    def collect(self) -> Iterator[Metric]:
        yield metrics.computed(self._calls)
        yield metrics.computed(self._failures)
        yield metrics.computed(self._durations)


@cache
def operation_type(operation: str) -> str:
    """`RunPodSandbox` → `run_podsandbox`, as the reference agent writes it."""
    if special := _SPECIAL.get(operation):
        return special
    return _WORDS.sub("_", operation.replace("PodSandbox", "Podsandbox")).lower()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_METHODS = frozenset(
    ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT")
)  # the reference counts PATCH as other
_PATHS = frozenset(
    (
        "attach", "checkpoint", "checkpoints", "configz", "containerLogs", "exec", "flagz",
        "healthz", "livez", "overview", "pods", "portForward", "pressure", "readyz", "run",
        "runningpods", "stats", "statusz",
    )
)  # fmt: skip
_LONG_RUNNING = frozenset(("attach", "exec"))  # the reference means portForward as well
_METRICS = frozenset(("resource", "containerstats", "cadvisor", "probes", "slis"))
_REQUEST_LABELS = ("method", "path", "server_type", "long_running")
OTHER = "other"


class HttpMetrics:
    """The three families; `middleware` counts the requests of one kind of port."""

    def __init__(self, registry: Registry) -> None:
        self._requests = registry.counter(
            "nodeagent_http_requests_total",
            "Number of the http requests received since the server started",
            _REQUEST_LABELS,
        )
        self._durations = registry.histogram(
            "nodeagent_http_requests_duration_seconds",
            "Duration in seconds to serve http requests",
            _REQUEST_LABELS,
        )
        self._inflight = registry.gauge(
            "nodeagent_http_inflight_requests",
            "Number of the inflight http requests",
            _REQUEST_LABELS,
        )

    def middleware(self, server_type: str) -> Any:
        """`readwrite` for the secure port, `readonly` for the one without authentication."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            method = request.method if request.method in _METHODS else OTHER
            path = path_label(request.path)
            labels = (method, path, server_type, "true" if path in _LONG_RUNNING else "false")
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            self._requests.labels(*labels).inc()
            inflight = self._inflight.labels(*labels)
            inflight.inc()
            try:
                return await handler(request)
            finally:
                inflight.dec()
                self._durations.labels(*labels).observe(loop.time() - begun_s, metrics.exemplar())

        return count


def path_label(path: str) -> str:
    """The first segment of a path that is served, `metrics/x` for a page below it, else `other`."""
    first, _, rest = path.strip("/").partition("/")
    if first == "metrics":
        second = rest.partition("/")[0]
        return f"metrics/{second}" if second in _METRICS else (OTHER if rest else "metrics")
    return first if first in _PATHS else OTHER
